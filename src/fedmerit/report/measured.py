"""Measures of a report: what is drawn over the rounds of a run, and how its clients ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.measures import rounds_to_target, spread, worst_mean
from fedmerit.core.types import Vector
from fedmerit.core.validation import SERVER
from fedmerit.store.ledger import Ledger

MARKS = ("p10", "p50", "p90")
STEPS = 50
"""The clients' final accuracies are kept as so many steps of their distribution: each holds for 2 % of the clients."""

ByRound: TypeAlias = Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A name and where it was measured: ("accuracy", ""), or an objective at the server, its median or worst client."""

    name: str
    at: str = ""


ACCURACY = Measure("accuracy")


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's measures by round, its targets (a line per target, None where not reached), its clients at the end."""

    curves: Mapping[Measure, ByRound]
    reached: Sequence[Sequence[int | None]]
    final: Sequence[float]


def measure_run(
    ledger: Ledger, rounds: Sequence[Mapping[str, Any]], targets: Sequence[float], shares: Sequence[float]
) -> Measured:
    """All of it empty before the first evaluated round."""
    tested, local = ledger.local_accuracy()
    evaluated = [row for row in rounds if row["accuracy"] is not None]
    if not tested or not evaluated:
        return Measured({}, [], [])
    curves = {
        **{Measure(mark): {row["round"]: row[mark] for row in evaluated} for mark in (ACCURACY.name, *MARKS)},
        Measure("worst"): _by_round(tested, [worst_mean(row) for row in local]),
        Measure("spread"): _by_round(tested, [spread(row) for row in local]),
        **dict(_audits(ledger)),
    }
    reached = [[rounds_to_target(tested, local, target, share) for share in shares] for target in targets]
    return Measured(curves, reached, distribution(local[-1]))


def distribution(local: Vector) -> list[float]:
    """The clients' accuracies in steps from the lowest to the highest; empty where none is known."""
    known = local[~np.isnan(local)]
    middles = (np.arange(STEPS) + 0.5) / STEPS
    return np.quantile(known, middles, method="inverted_cdf").tolist() if len(known) else []


def _by_round(rounds: Sequence[int], values: Sequence[float]) -> dict[int, float | None]:
    return {number: None if np.isnan(value) else value for number, value in zip(rounds, values, strict=True)}


def _audits(ledger: Ledger) -> Iterator[tuple[Measure, ByRound]]:
    """Each objective at the server, at the median client, at the worst client; where anybody could tell."""
    found: dict[str, dict[int, dict[int, float | None]]] = {}
    for number, client, objective, value in ledger.audits():
        found.setdefault(objective, {}).setdefault(number, {})[client] = value
    for objective, by_round in found.items():
        clients = {number: _known(values) for number, values in by_round.items()}
        for at, curve in (
            ("server", {number: values.get(SERVER) for number, values in by_round.items()}),
            ("median", {number: float(np.median(known)) if known else None for number, known in clients.items()}),
            ("worst", {number: min(known, default=None) for number, known in clients.items()}),
        ):
            if any(value is not None for value in curve.values()):
                yield Measure(objective, at), curve


def _known(values: Mapping[int, float | None]) -> list[float]:
    return [value for client, value in values.items() if client != SERVER and value is not None]
