"""DAFL: its example, the means of its Table 1 and its prose; and what can only be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fedmerit.core.weights.scores import Prioritized, importance
from reproductions.errata.erratum import Erratum, Evidence, Step, cannot, percent, shown
from reproductions.published import DAFL_DEVICES, published

Cells: TypeAlias = tuple[float | None, ...]
GROUPS = ("Low", "Mid", "High")


def _example() -> Evidence:
    rows = np.array([[0.5, 0.8, 0.9], [0.9, 0.8, 0.5]])
    factors, scores = importance(rows), Prioritized()(rows)
    slip = float(factors[1, :2] @ rows[1, :2] + factors[0, 2] * rows[1, 2])
    steps = (
        Step("C1>C2>C3: score", float(scores[0]), 1.26),
        *(Step(f"C3>C2>C1: lambda {i + 1}", float(factors[1, i]), printed) for i, printed in enumerate((1, 0.9, 0.72))),
        Step("C3>C2>C1: score", float(scores[1]), 1.82),
        Step("C3>C2>C1: score with lambda 3 of the first order, 0.4", slip, 1.82),
    )
    follows = f"0.9 + 0.72 + 0.72 x 0.5 = {scores[1]:.2f}; {slip:.2f} uses the third lambda of the other order, 0.4."
    return shown(math.isclose(scores[1], 1.98) and math.isclose(slip, 1.82), follows, *steps)


def group_mean(cells: Cells, group: int) -> float | None:
    """The mean of a group's two columns; None where one was not reached."""
    left, right = cells[2 * group : 2 * group + 2]
    return None if left is None or right is None else (left + right) / 2


def _low() -> Evidence:
    rows = published().dafl_rounds[75]["Ind"]
    means = {name: group_mean(rows[name].cells, 0) or math.nan for name in ("Ds", "Md", "Ld")}
    steps = [Step(f"{name} at 75 %, Low: mean rounds", mean, rows[name].means[0]) for name, mean in means.items()]
    steps.append(Step("Md over Ds", means["Md"] / means["Ds"] - 1, "6 %"))
    follows = (
        f"25.5 is Ds and 27 is Md, which differ by {percent(means['Md'] / means['Ds'] - 1)}; Ld has {means['Ld']:.1f}, "
        f"again {percent(means['Ld'] / means['Md'] - 1)} more than Md."
    )
    return shown(means["Ds"] == 25.5 and means["Ld"] != 27, follows, *steps)


def _improvement() -> Evidence:
    rows = published().dafl_rounds[75]["Ind"]
    ds, ld = (group_mean(rows[name].cells, 2) or math.nan for name in ("Ds", "Ld"))
    steps = (
        Step("Ds at 75 %, High: mean rounds", ds, 552.5),
        Step("Ld at 75 %, High: mean rounds", ld, 405),
        Step("Ds / Ld - 1", ds / ld - 1, "36 %"),
        Step("rounds saved, 1 - Ld / Ds", 1 - ld / ds),
    )
    follows = f"36 % is how much longer Ds takes; the rounds saved are {percent(1 - ld / ds, 1)}."
    return shown(round(ds / ld - 1, 2) == 0.36, follows, *steps)


class Mean(NamedTuple):
    """A printed mean of [DAFL, Table 1] and what the cells give."""

    of: str
    exact: float
    printed: float

    @property
    def cut(self) -> bool:
        """Whether digits were cut off where rounding would have given more."""
        places = len(f"{self.printed:g}".partition(".")[2])
        return round(self.exact, places) > self.printed + 1e-9

    @property
    def rounded_up(self) -> bool:
        """Whether the printed value is above the mean."""
        return self.printed > self.exact + 1e-9

    def __str__(self) -> str:
        return f"{self.exact:.6g} as {self.printed:g}"


def recomputed_means() -> list[Mean]:
    """Of the six orders, column by column, and of the two columns of each group."""
    means = []
    for target, studies in published().dafl_rounds.items():
        orders = [row.cells for name, row in studies["MCA"].items() if name != "mean"]
        exact = tuple(None if None in column else float(np.mean(column)) for column in zip(*orders, strict=True))
        printed = {study: studies[study]["mean"] for study in ("MCA", "Final")}
        columns = [f"{devices} % of devices" for devices in DAFL_DEVICES]
        means += _means_of(f"MCA at {target} %", columns, exact, printed["MCA"].cells)
        for study, cells in (("MCA", exact), ("Final", printed["Final"].cells)):
            groups = tuple(group_mean(cells, group) for group in range(len(GROUPS)))
            means += _means_of(f"{study} at {target} %", GROUPS, groups, printed[study].means)
    return means


def _means_of(what: str, columns: Sequence[str], exact: Cells, printed: Cells) -> list[Mean]:
    triples = zip(columns, exact, printed, strict=True)
    return [
        Mean(f"{what}, {name}", mean, value) for name, mean, value in triples if mean is not None and value is not None
    ]


def _means() -> Evidence:
    means = recomputed_means()
    steps = [Step(f"mean of {mean.of}", mean.exact, mean.printed) for mean in means]
    cut, up = [str(mean) for mean in means if mean.cut], [str(mean) for mean in means if mean.rounded_up]
    follows = (
        f"Digits are cut off in {', '.join(cut)}; elsewhere the last one is rounded ({', '.join(up)}). "
        "No conclusion changes."
    )
    return shown(len(cut) == 5 and len(up) > 0, follows, *steps)


DAFL = (
    Erratum(
        name="dafl-example-2",
        title="1.98, not 1.82",
        paper="DAFL",
        place="Example 2, second order",
        printed="A score of 1.82 for criteria 0.9, 0.8, 0.5.",
        fedmerit="`Prioritized` gives 1.98; it is a test vector.",
        evidence=_example,
    ),
    Erratum(
        name="dafl-prose-low",
        title="Ds and Md, not Md and Ld",
        paper="DAFL",
        place="Section 4, Study A on Table 1",
        printed="Md and Ld compared as 25.5 and 27, a difference of 6 %.",
        fedmerit="The cells of the table are taken as published, the prose is not used.",
        evidence=_low,
    ),
    Erratum(
        name="dafl-36-percent",
        title="27 % fewer rounds",
        paper="DAFL",
        place="Section 4, Study A",
        printed="405 rounds instead of 552.5 are called an improvement of 36 %.",
        fedmerit="Gains are rounds of the baseline minus rounds of the run.",
        evidence=_improvement,
    ),
    Erratum(
        name="dafl-means",
        title="digits cut off or rounded",
        paper="DAFL",
        place="Table 1, means",
        printed="Means of six orders and of pairs of columns, with one or two decimals.",
        fedmerit="Numbers are kept in full and rounded when shown.",
        evidence=_means,
    ),
    Erratum(
        name="dafl-notation",
        title="slips of the algorithm",
        paper="DAFL",
        place="Algorithm 1, line 23; Section 1",
        printed="The accuracy kept after a failed search is a client's; the text jumps back to step 3, the algorithm "
        "to step 9; FedAvg is said to average hyperparameters.",
        fedmerit="The accuracy of the whole federation is kept. A candidate reweights the round's updates; "
        "no client trains twice.",
        see="papers.md#dafl",
        evidence=cannot("pseudocode, wording", "It must be the global accuracy; steps 9 to 16; parameters."),
    ),
    Erratum(
        name="dafl-test-sets",
        title="chosen and reported on the same rows",
        paper="DAFL",
        place="Section 2.2 and Table 1",
        printed="The order is chosen by the accuracy on the clients' test sets, on which the result is reported too.",
        fedmerit='Orders are chosen on validation rows; `recipe.search.adjust_on = "test"` is the paper\'s way.',
        evidence=cannot("runs not published", "Results of block Final are too good by an unknown amount."),
    ),
)
