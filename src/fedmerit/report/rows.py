"""Rows of a report: the metrics of each run by round, and their mean and range over the seeds of one row."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.measures import percentiles, rounds_to_target, spread, worst_mean
from fedmerit.core.objectives import direction, worst_value
from fedmerit.core.state import SERVER
from fedmerit.core.types import ACCURACY, Vector
from fedmerit.report.packing import Number, shorten
from fedmerit.store.ledger import Ledger
from fedmerit.study.metrics import audits_by_objective, known_of_clients, server_accuracy

PERCENTILES = ("p10", "p50", "p90")
OF_CLIENTS = (*PERCENTILES, "worst", "spread")
DIGITS = 6
"""Significant digits of measures and other numbers about whole runs."""
STEPS = 50
"""The clients' final values are kept as this many quantiles: each stands for 2 % of the clients."""

ByRound: TypeAlias = Mapping[int, float | None]
Band: TypeAlias = list[Number]
"""Mean, lowest and highest over the seeds; a single value where there is one run."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A name and where it was measured: ("value", ""), or an objective at the server, its median or worst client."""

    name: str
    at: str = ""


VALUE = Metric("value")
"""The page's measure, averaged over the clients' test rows."""
LOSSES = ("training_loss", "validation_loss")
OF_PRIVACY = (Metric("epsilon"), Metric("clip"))


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """What was measured in one run; all of it is empty before the first evaluated round.

    `curves` has each metric by round, `reached` a line per target with the round in which each share of the clients
    got there (None: never), `final` the distribution of the measure over the clients after the last round, `measured`
    the number of clients where it is defined, and `losses` the final training and validation loss.
    """

    curves: Mapping[Metric, ByRound]
    reached: Sequence[Sequence[int | None]]
    final: Sequence[float]
    measured: int = 0
    losses: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run as its row needs it; `costs` are rounds played, bytes and seconds; None means unknown."""

    seed: int | None
    clients: int
    planned: int | None
    costs: Mapping[str, float]
    metrics: RunMetrics
    events: Sequence[Mapping[str, Any]]

    @property
    def unfinished(self) -> bool:
        """Whether rounds are missing."""
        return self.planned is not None and self.costs["played"] < self.planned


def measure_run(
    ledger: Ledger, rounds: Sequence[Mapping[str, Any]], targets: Sequence[float], shares: Sequence[float], measure: str
) -> RunMetrics:
    """The metrics of a run, read from its ledger, by the measure of the page."""
    tested, local = ledger.local(measure)
    evaluated = [row for row in rounds if row["accuracy"] is not None]
    if not tested or not evaluated:  # a Flower app may test its model only on the server
        server = server_accuracy(ledger)
        unknown: dict[Metric, ByRound] = {Metric(name): dict.fromkeys(server) for name in OF_CLIENTS}
        on_server: dict[Metric, ByRound] = {VALUE: server, **unknown, **dict(_audit_curves(ledger))}
        return RunMetrics(on_server if server else {}, [[None for _ in shares] for _ in targets] if server else [], [])
    column, lower = "value" if measure == ledger.measure else ACCURACY, direction(measure) < 0
    levels = dict(zip(PERCENTILES, zip(*map(percentiles, local), strict=True), strict=True))
    curves = {
        VALUE: {row["round"]: row[column] for row in evaluated},
        **{Metric(name): _by_round(tested, values) for name, values in levels.items()},
        Metric("worst"): _by_round(tested, [worst_mean(row, lower=lower) for row in local]),
        Metric("spread"): _by_round(tested, [spread(row) for row in local]),
        **dict(_audit_curves(ledger)),
    }
    if measure != ACCURACY:
        curves[Metric(ACCURACY)] = {row["round"]: row[ACCURACY] for row in evaluated}
    for metric in OF_PRIVACY:
        if all(row[metric.name] is not None for row in evaluated):
            curves[metric] = {row["round"]: row[metric.name] for row in evaluated}
    reached = [[rounds_to_target(tested, local, target, share, lower=lower) for share in shares] for target in targets]
    losses = {name: evaluated[-1][name] for name in LOSSES}
    return RunMetrics(curves, reached, distribution(local[-1]), int((~np.isnan(local[-1])).sum()), losses)


def distribution(local: Vector) -> list[float]:
    """Quantiles of the measure over the clients, from the lowest to the highest; empty where it is not known."""
    known = local[~np.isnan(local)]
    middles = (np.arange(STEPS) + 0.5) / STEPS
    return np.quantile(known, middles, method="inverted_cdf").tolist() if len(known) else []


def _by_round(rounds: Sequence[int], values: Sequence[float]) -> dict[int, float | None]:
    return {index: None if np.isnan(value) else value for index, value in zip(rounds, values, strict=True)}


def _audit_curves(ledger: Ledger) -> Iterator[tuple[Metric, ByRound]]:
    """Each objective at the server, at the median client and at the worst client, where anybody could measure it."""
    for objective, by_round in audits_by_objective(ledger).items():
        clients = {index: [*known_of_clients(values).values()] for index, values in by_round.items()}
        for at, curve in (
            ("server", {index: values.get(SERVER) for index, values in by_round.items()}),
            ("median", {index: float(np.median(known)) if known else None for index, known in clients.items()}),
            ("worst", {index: worst_value(objective, known) for index, known in clients.items()}),
        ):
            if any(value is not None for value in curve.values()):
                yield Metric(objective, at), curve


def shared_end(rows: Sequence[Sequence[RunResult]]) -> tuple[set[int | None], int | None]:
    """Seeds and round at which rows can be compared, also while some of their runs are unfinished.

    These are the seeds that every row has finished, at their last round (None). Before there is such a seed, they are
    all seeds, at the last round that every run with an evaluated round has evaluated.
    """
    tested = [[run for run in runs if run.metrics.curves] for runs in rows]
    finished = [{run.seed for run in runs if not run.unfinished} for runs in tested if runs]
    everybody = {run.seed for runs in tested for run in runs}
    if not any(run.unfinished for runs in rows for run in runs) or not finished:
        return everybody, None
    if both := set.intersection(*finished):
        return both, None
    rounds = [{*run.metrics.curves[VALUE]} for runs in tested for run in runs]
    return everybody, max(set.intersection(*rounds), default=None)


def row_data(
    runs: Sequence[RunResult], seeds: Container[int | None], end: int | None, measure: str = ACCURACY
) -> dict[str, Any]:
    """Costs of all runs of a row; curves of the given seeds; their best round, targets and clients at the round `end`.

    Before its own last round, the distribution of a run's clients is not known.
    """
    tested = [run.metrics for run in runs if run.metrics.curves and run.seed in seeds]
    last = math.inf if end is None else end
    at_end = [run for run in tested if max(run.curves[VALUE]) <= last]
    final = zip(*(run.final for run in at_end), strict=True) if len(at_end) == len(tested) else ()
    return {
        "seeds": [run.seed for run in runs],
        "clients": max(run.clients for run in runs),
        "planned": runs[0].planned,
        "unfinished": sum(run.unfinished for run in runs),
        "tested": len(tested),
        "costs": {name: band([run.costs[name] for run in runs]) for name in runs[0].costs},
        "best": _best(tested, last, measure),
        "measured": [run.measured for run in tested],
        "losses": {name: band([run.losses.get(name) for run in tested]) if tested else [None] for name in LOSSES},
        "constant": _constant(runs),
        "curve": _mean_curves(tested),
        "final": [shorten(fmean(values), DIGITS) for values in final],
        "reached": [
            [
                median_round([None if (index or 0) > last else index for index in cell])
                for cell in zip(*lines, strict=True)
            ]
            for lines in zip(*(run.reached for run in tested), strict=True)
        ],
        "events": _count_events(runs),
    }


def band(values: Sequence[float | None]) -> Band:
    """Mean, lowest and highest; unknown where one of the values is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return [None] * (3 if len(values) > 1 else 1)
    short = [shorten(value, DIGITS) for value in (fmean(known), min(known), max(known))]
    return short if len(known) > 1 else short[:1]


def median_round(reached: Sequence[int | None]) -> list[Number]:
    """The median over the seeds, where never (None) is later than any round; and how many seeds got there."""
    ordered = sorted(math.inf if index is None else index for index in reached)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return [shorten(middle, DIGITS), sum(index is not None for index in reached)]


def _mean_curves(runs: Sequence[RunMetrics]) -> dict[str, Any]:
    """Over the rounds that all runs have evaluated: a mean over fewer seeds would jump where one of them ends."""
    if not runs:
        return {"round": [], "measures": []}
    rounds = sorted(set.intersection(*({*run.curves[VALUE]} for run in runs)))
    shared = [metric for metric in runs[0].curves if all(metric in run.curves for run in runs)]
    bands = [[band([run.curves[metric].get(index) for run in runs]) for index in rounds] for metric in shared]
    lines = [[list(line) for line in zip(*by_round, strict=True)] for by_round in bands]
    return {
        "round": rounds,
        "measures": [
            {"name": metric.name, "at": metric.at, "lines": of_metric}
            for metric, of_metric in zip(shared, lines, strict=True)
        ],
    }


def _constant(runs: Sequence[RunResult]) -> dict[str, Any] | None:
    """The first note on a final model that is not better than a constant answer, and how many runs have one."""
    notes = [group["texts"][0]["text"] for run in runs for group in run.events if group["kind"] == "constant"]
    return {"text": notes[0], "runs": len(notes)} if notes else None


def _best(runs: Sequence[RunMetrics], last: float, measure: str) -> dict[str, Any] | None:
    """The best value of each run up to the last round, and the rounds in which it was first reached."""
    if not runs:
        return None
    shown = [[item for item in run.curves[VALUE].items() if item[0] <= last] for run in runs]
    worst, sign = -math.inf, direction(measure)
    best = [max(items, key=lambda item: worst if item[1] is None else sign * item[1]) for items in shown]
    return {"value": band([value for _, value in best]), "round": band([index for index, _ in best])}


def _count_events(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """How often each kind of event was noted in all runs together."""
    kinds = dict.fromkeys(group["kind"] for run in runs for group in run.events)
    counts = {kind: [group["count"] for run in runs for group in run.events if group["kind"] == kind] for kind in kinds}
    return [{"kind": kind, "count": sum(by_run), "runs": len(by_run)} for kind, by_run in counts.items()]
