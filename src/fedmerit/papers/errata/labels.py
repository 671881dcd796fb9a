"""Findings 2 and 5: two criteria whose names are, on strong evidence, exchanged between tables."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from fedmerit.papers.errata.entry import Erratum, Evidence, Step, listed, percent, shown
from fedmerit.papers.errata.facts import CELEBA_TESTS
from fedmerit.papers.errata.pmcfl_tables import mean_gain
from fedmerit.papers.published import CAP, published
from fedmerit.study.fairness import rank_correlation


def exchanged(row: str, one: str, other: str) -> str:
    """The row's name with two criteria's names exchanged."""
    return ">".join({one: other, other: one}.get(name, name) for name in row.split(">"))


def devices_above(accuracy: float, target: int) -> float:
    """Per cent of CelebA's clients above the target, if each of their images is right with this chance."""
    above = sum(n * stats.binom.sf(math.floor(target / 100 * size), size, accuracy) for size, n in CELEBA_TESTS.items())
    return float(100 * above / sum(CELEBA_TESTS.values()))


def coverage(row: str, place: int) -> int:
    """The largest share of devices, in per cent, that a row of Table 6 brings above the target in this place."""
    rounds = published().pmcfl_rounds[6].rounds(row, place)
    return max(10 * column for column, taken in enumerate(rounds, start=1) if taken is not None and taken < CAP)


def agreement(place: int, swap: bool) -> float:
    """Rank correlation over eight rows of the mean gain in Table 6 with the accuracy in Table 7, names as wanted."""
    accuracies, rows = published().pmcfl_errors[7], published().pmcfl_rounds[6].gains
    means = [mean_gain(6, row, place) for row in rows]
    named = [exchanged(row, "IS", "CB") if swap else row for row in rows]
    return rank_correlation(means, [accuracies[row].accuracy for row in named])


def _finding_2() -> Evidence:
    targets = published().pmcfl_rounds[6].targets
    steps = [step for row in ("IS", "CB") for step in _coverages(row)]
    as_printed, swapped = ([agreement(place, swap) for place in range(len(targets))] for swap in (False, True))
    for target, one, other in zip(targets, as_printed, swapped, strict=True):
        steps.append(Step(f"rank correlation with gain at {target} %, as printed", one))
        steps.append(Step(f"rank correlation with gain at {target} %, exchanged", other))
    low, high = ([devices_above(accuracy, target) for target in targets] for accuracy in (0.803, 0.876))
    follows = (
        f"Accuracy and gain should go together. Over the eight rows their rank correlation at {listed(targets, 'd')} % "
        f"is {listed(as_printed)} as printed, {listed(swapped)} with IS and CB exchanged in one table. And 80.3 % puts "
        f"{listed(low, '.0f')} % of the devices above the targets, as Table 6's row IS does; 87.6 % puts "
        f"{listed(high, '.0f')} % there, as its row CB does. What is said of CB and IS is probably the other way "
        "round; the tables alone cannot prove it."
    )
    return shown(max(as_printed) < 0.2 and min(swapped) > 0.6, follows, *steps, verdict="strong evidence")


def _coverages(row: str) -> list[Step]:
    """What the row's accuracy in Table 7 makes of its clients, beside what Table 6 says of this row and the other."""
    accuracy, steps = published().pmcfl_errors[7][row].accuracy, []
    for place, target in enumerate(published().pmcfl_rounds[6].targets):
        reached = ", ".join(f"{name} {coverage(name, place)}" for name in ("IS", "CB"))  # in Table 6
        what = f"{row} in Table 7, {percent(accuracy, 1)}: % of devices above {target} %"
        steps.append(Step(what, devices_above(accuracy, target), reached))
    return steps


def apart(target: int, order: str, single: str) -> float:
    """Mean relative difference of the rounds of an order from those of one criterion alone, in DAFL's Table 1."""
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
        "By finding 1 an order should come out like its first criterion alone. Of the 8 rows led by Ld or Md (4 "
        f"orders, 2 targets), {nearer} are nearer to the other one's; {equal} at 80 % equal it cell by cell. With the "
        "two names exchanged in one block nothing is surprising; the table alone cannot prove it."
    )
    return shown(nearer == 8 and equal == 2, follows, *steps, verdict="strong evidence")


FINDING_2 = Erratum(
    name="finding-2",
    title="IS and CB exchanged between PMCFL's tables",
    digest=("0.2", "B7"),
    paper="PMCFL",
    place="Tables 6 and 7, IS and CB",
    printed="Class balance (CB) speeds training up and sharpness (IS) slows it down in Table 6; Table 7 has CB at "
    "80.3 % and IS at 87.6 %.",
    fedmerit="Criteria go by name everywhere, never by a place in a list. Published labels stay as printed.",
    evidence=_finding_2,
)

FINDING_5 = Erratum(
    name="finding-5",
    title="Ld and Md exchanged in DAFL's table",
    digest=("0.5", "B19"),
    paper="DAFL",
    place="Table 1, Ld and Md",
    printed="For many devices Ld is best alone, but of the orders the ones led by Md; the text calls that surprising.",
    fedmerit="Criteria go by name everywhere; Md is `MW` here. Published labels stay as printed.",
    evidence=_finding_5,
)
