"""Figures of one run of a study: accuracies, spread over clients, group gaps, costs, rounds to target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedmerit.core.measures import percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.types import Vector
from fedmerit.core.validation import SERVER
from fedmerit.store.frames import Line
from fedmerit.store.ledger import Ledger

Better: TypeAlias = Literal["higher", "lower"]
MEASURES: Mapping[str, Better] = {
    "accuracy": "higher",
    "best": "higher",
    "p10": "higher",
    "p50": "higher",
    "p90": "higher",
    "worst": "higher",
    "variance": "lower",
    "bytes_down": "lower",
    "bytes_up": "lower",
    "seconds": "lower",
}
"""What is measured of every run, and which way is better; audits come on top."""

FIGURES = (*MEASURES, "best_round")
"""The columns of a study's figures, but for audits."""

GAPS = ("parity", "opportunity", "odds", "calibration")
"""Objectives that are 1 - a gap between groups (objectives.py)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run's ledger says: its figures, rounds to each target and share (None: not reached), and its curve."""

    figures: dict[str, float]
    reached: dict[tuple[float, float], int | None]
    curve: list[Line]


def read(ledger: Ledger, targets: Sequence[float], shares: Sequence[float]) -> Reading:
    """One pass over a run, finished or not; NaN where it has no evaluated round yet."""
    rounds = ledger.rounds()
    evaluated, local = ledger.local_accuracy()
    curve = [
        {key: row[key] for key in ("round", "accuracy", "p10", "p50", "p90")}
        for row in rounds
        if row["accuracy"] is not None
    ]
    reached = {
        (target, share): rounds_to_target(evaluated, local, target, share) for target in targets for share in shares
    }
    costs = {
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": sum(sum(row["seconds"].values()) for row in rounds),
    }
    last = local[-1] if len(evaluated) else np.full(1, np.nan)
    return Reading(_accuracies(curve) | _over_clients(last) | costs | dict(_audits(ledger)), reached, curve)


def better(measure: str) -> Better:
    """Which way a measure is better."""
    return MEASURES.get(measure) or ("lower" if measure.startswith("gap ") else "higher")


def _accuracies(curve: Sequence[Line]) -> dict[str, float]:
    if not curve:
        return {"accuracy": math.nan, "best": math.nan, "best_round": math.nan}
    best = max(curve, key=lambda row: row["accuracy"])
    return {"accuracy": curve[-1]["accuracy"], "best": best["accuracy"], "best_round": best["round"]}


def _over_clients(local: Vector) -> dict[str, float]:
    """Percentiles, mean of the worst tenth and variance of the accuracies of clients that have test rows."""
    marks = dict(zip(("p10", "p50", "p90"), percentiles(local), strict=True))
    return marks | {"worst": worst_mean(local), "variance": spread(local) ** 2}


def _audits(ledger: Ledger) -> Iterator[tuple[str, float]]:
    """The last audit, at the server where it has rows, else the clients' mean: gaps as gaps, the rest as they are."""
    audits = ledger.audits()
    last = max((round for round, *_ in audits), default=0)
    found = [one[1:] for one in audits if one[0] == last]
    at_server = [one for one in found if one[0] == SERVER]
    for name in dict.fromkeys(objective for _, objective, _ in found):
        values = [v for _, objective, v in at_server or found if objective == name and v is not None]
        value = float(np.mean(values)) if values else math.nan
        gap = name.partition(":")[0] in GAPS
        yield (f"gap {name}", 1 - value) if gap else (f"audit {name}", value)
