"""Rows of a report: what the runs of one row, which differ in the seed alone, say together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from fedmerit.report.columns import Number, shorten
from fedmerit.report.measured import ACCURACY, Measured

DIGITS = 6
"""Significant digits of accuracies and other figures of whole runs."""

Band: TypeAlias = list[Number]
"""Mean, lowest and highest over the seeds; just the one value of a single run."""


@dataclass(frozen=True, slots=True)
class Played:
    """One run as its row needs it; `costs` are rounds played, bytes and seconds; None is not known."""

    seed: int | None
    clients: int
    planned: int | None
    costs: Mapping[str, float]
    measured: Measured
    events: Sequence[Mapping[str, Any]]

    @property
    def unfinished(self) -> bool:
        """Whether rounds are missing."""
        return self.planned is not None and self.costs["played"] < self.planned


def row_data(runs: Sequence[Played]) -> dict[str, Any]:
    """Figures, curves and targets; a run without an evaluated round counts as unfinished and in nothing else."""
    tested = [run.measured for run in runs if run.measured.curves]
    return {
        "seeds": [run.seed for run in runs],
        "clients": max(run.clients for run in runs),
        "planned": runs[0].planned,
        "unfinished": sum(run.unfinished for run in runs),
        "tested": len(tested),
        "costs": {name: band([run.costs[name] for run in runs]) for name in runs[0].costs},
        "best": _best(tested),
        "curve": _curves(tested),
        "final": [shorten(fmean(values), DIGITS) for values in zip(*(run.final for run in tested), strict=True)],
        "reached": [
            [median_round(cell) for cell in zip(*lines, strict=True)]
            for lines in zip(*(run.reached for run in tested), strict=True)
        ],
        "events": _count_events(runs),
    }


def band(values: Sequence[float | None]) -> Band:
    """Unknown where one of them is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return [None] * (3 if len(values) > 1 else 1)
    short = [shorten(value, DIGITS) for value in (fmean(known), min(known), max(known))]
    return short if len(known) > 1 else short[:1]


def median_round(reached: Sequence[int | None]) -> list[Number]:
    """The median over the seeds, for which never is later than any round (None: never); and how many came there."""
    ordered = sorted(math.inf if number is None else number for number in reached)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return [shorten(middle, DIGITS), sum(number is not None for number in reached)]


def _curves(runs: Sequence[Measured]) -> dict[str, Any]:
    """Over the rounds that all of them have evaluated: a mean over fewer seeds would jump where one of them ends."""
    if not runs:
        return {"round": [], "measures": []}
    rounds = sorted(set.intersection(*({*run.curves[ACCURACY]} for run in runs)))
    shared = [measure for measure in runs[0].curves if all(measure in run.curves for run in runs)]
    bands = [[band([run.curves[measure].get(number) for run in runs]) for number in rounds] for measure in shared]
    lines = [[list(line) for line in zip(*found, strict=True)] for found in bands]
    return {
        "round": rounds,
        "measures": [{"name": m.name, "at": m.at, "lines": found} for m, found in zip(shared, lines, strict=True)],
    }


def _best(runs: Sequence[Measured]) -> dict[str, Any] | None:
    """The highest accuracy of each run, and the rounds in which it was first reached."""
    if not runs:
        return None
    best = [max(run.curves[ACCURACY].items(), key=lambda item: item[1] or 0.0) for run in runs]
    return {"accuracy": band([value for _, value in best]), "round": band([number for number, _ in best])}


def _count_events(runs: Sequence[Played]) -> list[dict[str, Any]]:
    """How often each kind was noted in all runs together."""
    kinds = dict.fromkeys(group["kind"] for run in runs for group in run.events)
    counts = {kind: [group["count"] for run in runs for group in run.events if group["kind"] == kind] for kind in kinds}
    return [{"kind": kind, "count": sum(found), "runs": len(found)} for kind, found in counts.items()]
