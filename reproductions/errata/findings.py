"""Findings 2 to 5, on whole tables: criteria exchanged, error matrices that pair nothing, gains that are noise.

The authors' code is github.com/sisinflab/ClientAware-FL at commit 6439a7cca35e250393aac18b64c2c51f14c9a0a4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy import stats

from fedmerit.core.seeds import generator
from fedmerit.core.types import Matrix
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import total_variation, weigh
from fedmerit.study.fairness import rank_correlation
from reproductions.errata.erratum import Erratum, Evidence, Step, listed, percent, shown
from reproductions.errata.idle_priority import SEED, change
from reproductions.errata.pmcfl_tables import mean_gain
from reproductions.published import CAP, CELEBA_ROUND, CELEBA_TESTS, Errors, published

PERMUTATIONS = ("DS", "CB", "IS", "DS>CB>IS", "DS>IS>CB", "CB>DS>IS", "IS>DS>CB", "CB>IS>DS", "IS>CB>DS")
"""CelebA/Server.py, lines 76 to 82: c1 is the dataset size, c4 the class balance, c5 the image sharpness."""
LABELS = ("DS", "IS", "CB", "DS>IS>CB", "DS>CB>IS", "IS>DS>CB", "CB>DS>IS", "IS>CB>DS", "CB>IS>DS")
"""Evaluation/evaluation.py, lines 95 to 103: the row names that it prints for the same permutations."""


def exchanged(row: str, one: str, other: str) -> str:
    """The row's name with two criteria's names exchanged."""
    return ">".join({one: other, other: one}.get(name, name) for name in row.split(">"))


def devices_above(accuracy: float, target: int, tests: Mapping[int, int] | None = None) -> float:
    """Per cent of CelebA's clients above the target, if each of their images is right with this probability.

    `tests` are clients by their number of test images; the authors' where none are given.
    """
    sizes = tests or CELEBA_TESTS
    above = sum(n * stats.binom.sf(math.floor(target / 100 * size), size, accuracy) for size, n in sizes.items())
    return float(100 * above / sum(sizes.values()))


def coverage(row: str, place: int) -> int:
    """The largest share of devices, in per cent, above the target in this place, by row [PMCFL, Table 6]."""
    rounds = published().pmcfl_rounds[6].rounds(row, place)
    return max(10 * column for column, taken in enumerate(rounds, start=1) if taken is not None and taken < CAP)


def agreement(place: int, swap: bool) -> float:
    """Rank correlation over eight rows of mean gain [PMCFL, Table 6] and accuracy [PMCFL, Table 7].

    With `swap`, the names IS and CB are exchanged in one of the tables.
    """
    accuracies, rows = published().pmcfl_errors[7], published().pmcfl_rounds[6].gains
    means = [mean_gain(6, row, place) for row in rows]
    named = [exchanged(row, "IS", "CB") if swap else row for row in rows]
    return rank_correlation(means, [accuracies[row].accuracy for row in named])


def _finding_2() -> Evidence:
    targets = published().pmcfl_rounds[6].targets
    steps = [
        Step(f"permutation {number} of the authors' code", computed, label)
        for number, (computed, label) in enumerate(zip(PERMUTATIONS, LABELS, strict=True))
    ]
    by_code = all(
        exchanged(computed, "IS", "CB") == label for computed, label in zip(PERMUTATIONS, LABELS, strict=True)
    )
    steps += [step for row in ("IS", "CB") for step in _coverages(row)]
    as_printed, swapped = ([agreement(place, swap) for place in range(len(targets))] for swap in (False, True))
    for target, printed, exchange in zip(targets, as_printed, swapped, strict=True):
        steps.append(Step(f"rank correlation with gain at {target} %, as printed", printed))
        steps.append(Step(f"rank correlation with gain at {target} %, exchanged", exchange))
    follows = (
        "The authors' code weighs by class balance in permutation 1, by sharpness in 2 (CelebA/Server.py:76-82), and "
        "prints them as IS and CB (Evaluation/evaluation.py:96-97, plots.py:20-21), in the orders too. Table 6 and "
        "Figure 3 have the two names exchanged, and their conclusion is reversed: sharpness sped these runs up, class "
        f"balance slowed them down. Table 7 fits that: the rank correlation of its accuracies with the gains at "
        f"{listed(targets, 'd')} % is {listed(as_printed)} as printed, {listed(swapped)} with Table 6 put right."
    )
    return shown(by_code and max(as_printed) < 0.2 and min(swapped) > 0.6, follows, *steps)


def _coverages(row: str) -> list[Step]:
    """Devices above each target by the row's accuracy in Table 7, beside what Table 6 prints for IS and for CB."""
    accuracy, steps = published().pmcfl_errors[7][row].accuracy, []
    for place, target in enumerate(published().pmcfl_rounds[6].targets):
        reached = ", ".join(f"{name} {coverage(name, place)}" for name in ("IS", "CB"))  # in Table 6
        what = f"{row} in Table 7, {percent(accuracy, 1)}: % of devices above {target} %"
        steps.append(Step(what, devices_above(accuracy, target), reached))
    return steps


def correlation(errors: Errors) -> float:
    """Correlation of two models' errors, image by image: 0 for unrelated errors, 1 for the same ones."""
    a, b, c, d = errors
    return (a * d - b * c) / math.sqrt((a + b) * (c + d) * (a + c) * (b + d))


def _finding_3() -> Evidence:
    tables = published().pmcfl_errors
    steps = [
        Step(
            f"Table {number}, {row}: images that both have wrong, if unrelated",
            errors.both_wrong_if_unrelated,
            errors.both_wrong,
        )
        for number, matrices in tables.items()
        for row, errors in matrices.items()
    ]
    every = [errors for matrices in tables.values() for errors in matrices.values()]
    mnist, most = [*tables[3].values(), *tables[5].values()], max(every, key=lambda errors: errors.both_wrong)
    highest = max(map(correlation, every))
    steps.append(Step(f"largest correlation of the errors in {len(every)} matrices", highest))
    shared = [errors.both_wrong for errors in mnist]
    chance = [errors.both_wrong_if_unrelated for errors in mnist]
    follows = (
        f"On MNIST two runs have {min(shared)} to {max(shared)} wrong images in common, unrelated models would have "
        f"{min(chance):.1f} to {max(chance):.1f}; on CelebA at most {most.both_wrong} where those would have "
        f"{most.both_wrong_if_unrelated:.0f}. The correlation never passes {highest:.2f}, though two models on one "
        "test set share most hard images. The authors' code shuffles the list of clients in every round (CelebA/"
        "Server.py:60, MNIST/Server.py:57) and names each client's file of predictions by its place in that list "
        "(:185-186, :174-175): equal file names are different clients. Only the accuracies can be used."
    )
    return shown(highest < 0.1, follows, *steps)


def celeba_round(seed: int) -> Matrix:
    """A round like CelebA's, columns DS, CB and IS: sizes as the authors' split has them, the rest drawn.

    Smiling has mean 0.48 and correlation 0.22 within a person (a beta law with a + b = 1 / 0.22 - 1); 5 % are blurry.
    """
    random, clients = generator(seed, "finding-4"), np.array(list(CELEBA_TESTS.values()))
    sizes = 4 * random.choice(list(CELEBA_TESTS), size=CELEBA_ROUND, p=clients / clients.sum())  # 80 % train, 20 % test
    smiling = random.binomial(sizes, random.beta(0.48 * 3.55, 0.52 * 3.55, size=CELEBA_ROUND))
    balance = np.minimum(smiling, sizes - smiling) / np.maximum(smiling, sizes - smiling)
    return np.column_stack([sizes, balance, random.binomial(sizes, 0.95) / sizes])


def _finding_4() -> Evidence:
    iid = np.array([[600.0, 10.0]] * 10)  # ten clients of 600 images and ten labels each
    by_size, by_labels = (weigh(iid[:, [place]], ["one"], Prioritized()).weights for place in (0, 1))
    table = published().pmcfl_rounds[2]
    even = [row for row in table.gains if row[:2] in ("DS", "LD")]
    cells = max(abs(gain or 0) for row in even for block in table.gains[row] for gain in block)
    means = max(abs(mean) for row in even for mean in table.averages[row])
    drawn = celeba_round(SEED)
    orders = {"DS>CB>IS": change(drawn, "sum"), "DS>IS>CB": change(drawn[:, [0, 2, 1]], "sum")}
    steps = [
        Step("MNIST IID: share of weight that differs between DS and LD", total_variation(by_size, by_labels)),
        Step("Table 2, rows led by DS or LD: largest gain or loss of a cell, rounds", cells),
        Step("Table 2, rows led by DS or LD: largest average gain or loss, rounds", means),
    ]
    steps += [Step(f"CelebA: largest change of a weight, {row} against DS", at.largest) for row, at in orders.items()]
    steps += [Step(f"Table 6, {row}: gains and losses against DS, rounds", _range(row)) for row in orders]
    largest = max(at.largest for at in orders.values())
    follows = (
        "With equal sizes and labels DS and LD give the same weights and orders led by them almost the same, yet the "
        f"rows differ from DS by up to {cells} rounds in a cell and {means:.1f} on average: noise. On CelebA (drawn "
        f"like it, {CELEBA_ROUND} clients) no weight of the DS-first rows differs from DS by more than "
        f"{percent(largest, 1)}, yet they gain {_range('DS>CB>IS')} and {_range('DS>IS>CB')} rounds."
    )
    return shown(steps[0].recomputed == 0 and largest < 0.005 and cells > 20, follows, *steps)


def _range(row: str) -> str:
    gains = [gain for block in published().pmcfl_rounds[6].gains[row] for gain in block if gain is not None]
    return f"{min(gains)} to {max(gains)}"


def apart(target: int, order: str, single: str) -> float:
    """Mean relative difference of the rounds of an order from those of one criterion alone [DAFL, Table 1]."""
    table = published().dafl_rounds[target]
    pairs = zip(table["MCA"][order].cells, table["Ind"][single].cells, strict=True)
    return float(np.mean([abs(a - b) / b for a, b in pairs if a is not None and b is not None]))


def _finding_5() -> Evidence:
    steps, nearer = [], 0
    for target in (75, 80):
        for order in ("Ld>Ds>Md", "Ld>Md>Ds", "Md>Ds>Ld", "Md>Ld>Ds"):
            first, other = order[:2], exchanged(order[:2], "Ld", "Md")
            distances = {name: apart(target, order, name) for name in (first, other)}
            nearer += distances[other] < distances[first]
            for name, distance in distances.items():
                steps.append(Step(f"{target} %, {order}: mean relative difference from {name} alone", distance))
    equal = sum(apart(80, *rows) == 0 for rows in (("Ld>Md>Ds", "Md"), ("Md>Ld>Ds", "Ld")))
    follows = (
        "By finding 1 an order should behave like its first criterion. Of the 8 rows led by Ld or Md (4 "
        f"orders, 2 targets), {nearer} are nearer to the row of the other criterion; {equal} at 80 % equal it cell by "
        "cell. With the two names swapped in one block this is explained; the table alone cannot prove it."
    )
    return shown(nearer == 8 and equal == 2, follows, *steps, verdict="strong evidence")


FINDING_2 = Erratum(
    name="finding-2",
    title="IS and CB exchanged in PMCFL's Table 6",
    paper="PMCFL",
    place="Table 6, Figure 3, Sections 6.1 and 6.2",
    printed="Class balance (CB) speeds training up and sharpness (IS) slows it down.",
    fedmerit="Criteria are identified by name, never by position. `pmcfl-table6` shows each published row next to the "
    "criteria that it was run with.",
    evidence=_finding_2,
)

FINDING_3 = Erratum(
    name="finding-3",
    title="PMCFL's error matrices do not pair images",
    paper="PMCFL",
    place="Tables 3, 5 and 7",
    printed="Each run's right and wrong test images against those of DS, as if image by image.",
    fedmerit="Runs with one seed test the same rows of the same clients in the same order.",
    evidence=_finding_3,
)

FINDING_4 = Erratum(
    name="finding-4",
    title="gains of PMCFL's single runs are noise",
    paper="PMCFL",
    place="Tables 2, 4 and 6, all rows",
    printed="Gains over DS. Each row is one run; the authors' code (MNIST/main.py:46-51) draws a new partition, first "
    "model and clients for each and sets no seed.",
    fedmerit="Runs with one seed share partition, first model and clients. A difference between two single runs is not "
    "a result; take several seeds.",
    evidence=_finding_4,
)

FINDING_5 = Erratum(
    name="finding-5",
    title="Ld and Md swapped in DAFL's table",
    paper="DAFL",
    place="Table 1, Ld and Md",
    printed="For many devices Ld is the best single criterion, but orders led by Md are best; the text calls that "
    "surprising.",
    fedmerit="Criteria are identified by name; Md is `MW` here. Published labels stay as printed.",
    evidence=_finding_5,
)
