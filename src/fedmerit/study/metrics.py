"""Metrics of a study's runs, read from their ledgers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedmerit.core.measures import percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.objectives import direction, is_error
from fedmerit.core.state import SERVER
from fedmerit.core.types import ACCURACY, ClientId, Vector
from fedmerit.store.frames import Line
from fedmerit.store.ledger import Ledger

Better: TypeAlias = Literal["higher", "lower"]
OF_MEASURE = ("best", "p10", "p50", "p90", "worst")
"""Metrics in the unit of the run's measure, which say nothing of the direction that is better."""
COSTS = ("variance", "bytes_down", "bytes_up", "seconds")
"""Metrics for which lower is better, whatever the measure."""

GAPS = ("parity", "opportunity")
"""Objectives that are 1 minus a gap between groups."""


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Metrics of a run by name, rounds to each (target, share) or None if not reached, and its curve by round.

    `local` has the measure of each client after the last evaluated round, by name.
    """

    values: dict[str, float]
    reached: dict[tuple[float, float], int | None]
    curve: list[Line]
    local: dict[str, float]


def read_metrics(
    ledger: Ledger, targets: Sequence[float], shares: Sequence[float], *, or_equal: bool = False
) -> RunMetrics:
    """Compute the metrics of a run, finished or not; NaN if it has no evaluated round yet.

    `targets` are values of the measure; `shares` are the shares of the clients that must be better than them
    (`rounds_to_target`).
    """
    rounds, measure = ledger.rounds(), ledger.measure
    evaluated, local = ledger.local()
    lower = direction(measure) < 0
    curve = [
        {"round": row["round"], measure: row["value"], **{key: row[key] for key in ("p10", "p50", "p90")}}
        for row in rounds
        if row["accuracy"] is not None
    ]
    reached = {
        (target, share): rounds_to_target(evaluated, local, target, share, or_equal=or_equal, lower=lower)
        for target in targets
        for share in shares
    }
    costs = {
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": sum(sum(row["seconds"].values()) for row in rounds),
    }
    last = local[-1] if len(evaluated) else np.full(1, np.nan)
    accuracy = {ACCURACY: next((row[ACCURACY] for row in reversed(rounds) if row[ACCURACY] is not None), math.nan)}
    by_name = dict(zip(ledger.names(), last.tolist(), strict=False))
    of_measure = accuracy | _values(curve, measure) | _over_clients(last, lower)
    return RunMetrics(of_measure | costs | dict(_audits(ledger, measure)), reached, curve, by_name)


def metric_names(measure: str) -> tuple[str, ...]:
    """Metrics of every run with this measure, which is the first; `read_metrics` adds audits."""
    return (*dict.fromkeys((measure, ACCURACY)), *OF_MEASURE, *COSTS)


def better(metric: str, measure: str = ACCURACY) -> Better:
    """Whether higher or lower is better; for audits, `gap NAME` is lower and `audit NAME` higher, except for errors.

    >>> better("p10", "auc"), better("p10", "mae"), better("audit mae")
    ('higher', 'lower', 'lower')
    """
    kind, _, name = metric.partition(" ")
    objective = measure if metric in OF_MEASURE else name or metric
    return "lower" if metric in COSTS or kind == "gap" or is_error(objective) else "higher"


def _values(curve: Sequence[Line], measure: str) -> dict[str, float]:
    """The measure after the last evaluated round, and its best value."""
    known = [line for line in curve if line[measure] is not None]
    if not known:
        return {measure: math.nan, "best": math.nan, "best_round": math.nan}
    best = max(known, key=lambda line: direction(measure) * line[measure])
    return {measure: known[-1][measure], "best": best[measure], "best_round": best["round"]}


def _over_clients(local: Vector, lower: bool) -> dict[str, float]:
    """Percentiles, mean of the worst tenth and variance of the measure, over clients where it is defined."""
    levels = dict(zip(("p10", "p50", "p90"), percentiles(local), strict=True))
    return levels | {"worst": worst_mean(local, lower=lower), "variance": spread(local) ** 2}


def audits_by_objective(
    ledger: Ledger, number: int | None = None
) -> dict[str, dict[int, dict[ClientId, float | None]]]:
    """The audits of all rounds, or of one round: by objective, then round, then client or `SERVER`."""
    audits: dict[str, dict[int, dict[ClientId, float | None]]] = {}
    for index, client, objective, value in ledger.audits(number):
        audits.setdefault(objective, {}).setdefault(index, {})[client] = value
    return audits


def server_accuracy(ledger: Ledger) -> dict[int, float]:
    """Accuracy on the server's rows by round, as a Flower app reports it; empty if it does not."""
    for objective, by_round in audits_by_objective(ledger).items():
        known = {index: values.get(SERVER) for index, values in by_round.items()}
        if objective.endswith(("accuracy", "acc")) and None not in known.values():
            return {index: value for index, value in known.items() if value is not None}
    return {}


def known_of_clients(values: Mapping[ClientId, float | None]) -> dict[ClientId, float]:
    """The clients' values of an objective, without the server's and without unknown values."""
    return {client: value for client, value in values.items() if client != SERVER and value is not None}


def _audits(ledger: Ledger, measure: str) -> Iterator[tuple[str, float]]:
    """The last audit: the server's value if it has rows, else the mean over clients; a gap is 1 - value.

    A measure that only clients audit is left out, for it is a metric already; accuracy is audited only on request.
    """
    audits = audits_by_objective(ledger)
    last_round = max((index for by_round in audits.values() for index in by_round), default=0)
    last = {name: by_round[last_round] for name, by_round in audits.items() if last_round in by_round}
    has_server = any(SERVER in values for values in last.values())
    for name, values in last.items():
        server = values.get(SERVER)
        if name == measure != ACCURACY and server is None:
            continue
        audited = ([] if server is None else [server]) if has_server else [*known_of_clients(values).values()]
        mean, metric = float(np.mean(audited)) if audited else math.nan, audit_metric(name)
        yield metric, 1 - mean if metric.startswith("gap ") else mean


def audit_metric(objective: str) -> str:
    """The metric of an audited objective: `gap NAME` if it is 1 minus a gap between groups, else `audit NAME`."""
    return f"gap {objective}" if objective.partition(":")[0] in GAPS else f"audit {objective}"
