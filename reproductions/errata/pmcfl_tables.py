"""PMCFL's tables of rounds: averages, impossible cells, and what the prose says about them [PMCFL, sec. 6]."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from reproductions.errata.erratum import Erratum, Evidence, Step, listed, shown
from reproductions.published import Cells, published

NUMBERS = (2, 4, 6)
HALF_A_DIGIT = 0.0051  # printed with two decimals


def mean_gain(number: int, row: str, place: int) -> float:
    """The mean gain of a row over the cells that have a number."""
    return float(np.mean([gain for gain in published().pmcfl_rounds[number].gains[row][place] if gain is not None]))


def ninth(number: int, row: str, place: int) -> float:
    """The sum of the cells divided by nine, however many there are."""
    return sum(gain or 0 for gain in published().pmcfl_rounds[number].gains[row][place]) / 9


def _averages() -> Evidence:
    cells = [(number, row, place, printed) for number in NUMBERS for row, place, printed in _printed(number)]
    steps = [
        Step(f"{row} at {published().pmcfl_rounds[6].targets[place]} %: mean gain", mean_gain(6, row, place), printed)
        for row, place, printed in _printed(6)
    ]
    ninths = [abs(printed - ninth(number, row, place)) < HALF_A_DIGIT for number, row, place, printed in cells]
    means = [abs(printed - mean_gain(number, row, place)) < HALF_A_DIGIT for number, row, place, printed in cells]
    wrong6, right24 = sum(ninths[-24:]), sum(means[:-24])
    steps.append(Step("Table 6: averages of 24 that are the sum divided by 9", wrong6))
    steps.append(Step("Tables 2 and 4: averages of 64 that are right", right24))
    real = [mean_gain(6, "CB", place) for place in range(3)]
    steps.append(Step("CB: mean of its three means (prose: of the printed averages)", float(np.mean(real)), 7.5))
    follows = (
        f"{wrong6} of 24 averages are the sum divided by 9, though the blocks have 8, 7 and 5 columns. CB's means are "
        f"{listed(real)}, not {listed(published().pmcfl_rounds[6].averages['CB'])}; the prose uses both kinds. In "
        f"Tables 2 and 4, with 9 columns, {right24} of 64 are right."
    )
    return shown(wrong6 == 24 and right24 == 64 and not any(means[-24:]), follows, *steps)


def _printed(number: int) -> list[tuple[str, int, float]]:
    averages = published().pmcfl_rounds[number].averages
    return [(row, place, printed) for row, blocks in averages.items() for place, printed in enumerate(blocks)]


def falls(rounds: Cells) -> list[int]:
    """Columns after which more devices are reached in fewer rounds."""
    pairs = enumerate(pairwise(rounds), start=1)
    return [column for column, (few, more) in pairs if few is not None and more is not None and more < few]


def _falling() -> Evidence:
    steps, rows = [], 0
    for number in NUMBERS:
        table = published().pmcfl_rounds[number]
        for row in ("DS", *table.gains):
            for place, target in enumerate(table.targets):
                rounds, rows = table.rounds(row, place), rows + 1
                for column in falls(rounds):
                    few, more = (f"{rounds[at]} for {10 * at + 10} % of devices" for at in (column - 1, column))
                    steps.append(Step(f"rounds of {row} at {target} % in Table {number}", f"{few}, {more}"))
    steps.append(Step("rows and targets of Tables 2, 4 and 6 that were looked at", rows))
    follows = (
        "More devices cannot be reached sooner than fewer, but: "
        + "; ".join(f"{step.what}: {step.recomputed}" for step in steps[:-1])
        + f". Nowhere else among {rows} rows."
    )
    return shown(len(steps) == 3, follows, *steps)


def _prose_mnist() -> Evidence:
    mixed, alone = mean_gain(4, "MW>DS>LD", 2), mean_gain(4, "MW", 1)
    steps = (
        Step("MW>DS>LD at 90 %: mean gain; the table prints 0.56, the prose", mixed, 2.1),
        Step("MW at 80 %: mean gain; the table prints -1.11, the prose", alone, "1 to 2 gained"),
    )
    follows = f"The cells of Table 4 have {mixed:.2f} for the first and {alone:.2f}, a loss, for the second."
    return shown(abs(mixed - 2.1) > 1 and alone < 0, follows, *steps)


def _prose_85() -> Evidence:
    table = published().pmcfl_rounds[6]
    ds, cb = table.rounds("DS", 2), table.rounds("CB", 2)
    last = 10 * len(ds)
    steps = (
        Step("85 %: last column, per cent of devices", last, 60),
        Step("85 %: rounds of DS there", ds[-1]),
        Step("85 %: rounds of CB there", cb[-1]),
    )
    follows = f"The table stops at {last} % of the devices; there CB needs {cb[-1]} rounds, DS {ds[-1]}."
    return shown(last == 50, follows, *steps)


def _prose_best() -> Evidence:
    table, row = published().pmcfl_rounds[6], "DS>CB>IS"
    means = [mean_gain(6, row, place) for place in range(3)]
    cells = [(place, column, gain) for place, block in enumerate(table.gains[row]) for column, gain in enumerate(block)]
    most = max(gain for *_, gain in cells if gain is not None)
    beaten = [
        f"{table.targets[place]} %, {10 * column + 10} % of devices"
        for place, column, gain in cells
        if max(blocks[place][column] or -100 for blocks in table.gains.values()) > (gain or 0)
    ]
    steps = (
        *(Step(f"{row} at {table.targets[place]} %: mean gain", mean) for place, mean in enumerate(means)),
        Step(f"{row}: largest gain of a cell", most, 12),
        Step(f"cells of {len(cells)} in which another row is better", len(beaten), 0),
    )
    follows = (
        f"Means are {listed(means, '.1f')} and single cells go up to {most}. Another row is better in {len(beaten)} of "
        f"{len(cells)} cells ({'; '.join(beaten)})."
    )
    return shown(most > 12 and len(beaten) > 0, follows, *steps)


PMCFL_TABLES = (
    Erratum(
        name="pmcfl-averages",
        title="sums divided by nine",
        paper="PMCFL",
        place="Table 6, averages",
        printed="Mean gains in rounds; 7.67 / 7.67 / 7.22 for CB at 70 / 80 / 85 %.",
        fedmerit="A mean is over the cells that exist, and a target that was not reached is not a number: "
        "`rounds_to_target` gives None.",
        evidence=_averages,
    ),
    Erratum(
        name="pmcfl-falling-rounds",
        title="more devices in fewer rounds",
        paper="PMCFL",
        place="Table 6, two rows at 70 %",
        printed="Gains of 6 at 50 % of the devices (in four rows), from which rounds follow.",
        fedmerit="Rounds to target are computed from every client's accuracy in every round, so they never fall.",
        evidence=_falling,
    ),
    Erratum(
        name="pmcfl-prose-mnist",
        title="gains that the table does not have",
        paper="PMCFL",
        place="Section 6 on Table 4",
        printed="MW>DS>LD gains 2.1 rounds at 90 %; LD and MW gain 1 to 2 rounds at 70 and 80 %.",
        fedmerit="The cells of the table are taken as published, the prose is not used.",
        evidence=_prose_mnist,
    ),
    Erratum(
        name="pmcfl-prose-85",
        title="a column that does not exist",
        paper="PMCFL",
        place="Section 6.1 on Table 6",
        printed="CB brings 60 % of the devices to 85 % in less than half of the rounds of DS.",
        fedmerit="The cells of the table are taken as published; the sentence holds for 50 % of the devices.",
        evidence=_prose_85,
    ),
    Erratum(
        name="pmcfl-prose-best",
        title="neither best everywhere nor up to 12",
        paper="PMCFL",
        place="Section 6.2 on Table 6",
        printed="DS>CB>IS is best for every target and share of devices, by up to 12 rounds.",
        fedmerit="The cells of the table are taken as published, the prose is not used.",
        evidence=_prose_best,
    ),
)
