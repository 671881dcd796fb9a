"""Verdicts: each row of a study against the baseline, metric by metric, over the seeds that both have finished."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmerit.core.types import ACCURACY, Vector
from fedmerit.store.frames import Frame, Line, make_frame
from fedmerit.study.metrics import Better, better, metric_names
from fedmerit.study.plan import ROUNDS, Plan
from fedmerit.study.statistics import ALPHA, Paired, holm, paired, restricted
from fedmerit.study.text_table import number_text

FEWEST = 5
"""Seeds below which there is no verdict."""

BASELINE, SAME, NOISE, NEVER, TOO_FEW = "baseline", "the same", "inside the noise", "not reached", "too few seeds"
COLUMNS = (
    *("row", "measure", "target", "share", "better", "seeds", "mean", "baseline", "difference"),
    *("low", "high", "sd", "p", "p_holm", "censored", "verdict"),
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of all rows.

    `values` has a vector per row with one value per seed, NaN where the run is not finished or the value not known.
    Rounds to target also have the `target`, the `share` of devices (NaN: the mean over all shares) and `missed`: 1
    for each seed in which the target was not reached, else 0; for the mean, the part of the shares that missed it.
    """

    name: str
    values: Mapping[str, Vector]
    target: float = math.nan
    share: float = math.nan
    missed: Mapping[str, Vector] = field(default_factory=dict)
    measure: str = ACCURACY

    @property
    def better(self) -> Better:
        """Which way is better; for percentiles and the like this depends on the `measure` of the runs."""
        return "lower" if self.name == ROUNDS else better(self.name, self.measure)


def compare_rows(metrics: Sequence[Metric], baseline: str) -> Frame:
    """A line per row and metric: mean, paired difference with its interval, p, Holm's p over the rows, a verdict."""
    return make_frame([line for metric in metrics for line in _lines(metric, baseline)], COLUMNS)


def metrics_of_runs(metrics: Frame, plan: Plan, measure: str) -> Iterator[Metric]:
    """The metrics in a study's `metrics`, audits included, over its finished runs."""
    finished = metrics[metrics["finished"]]
    audits = [name for name in metrics.columns if name.startswith(("gap ", "audit "))]
    for name in [*metric_names(measure), *audits]:
        yield Metric(name, by_row(finished, name, plan), measure=measure)


def rounds_metrics(reached: Frame, plan: Plan, targets: Sequence[float]) -> Iterator[Metric]:
    """Rounds to target, restricted to the horizon: for each target the mean over the shares, then each share."""
    watched = reached.assign(
        restricted=restricted(reached["rounds"].to_numpy(), reached["horizon"].to_numpy()),
        missed=reached["rounds"].isna(),
    )
    for target in targets:
        by_share = [_rounds_metric(watched, target, share, plan) for share in plan.shares]
        mean = {row.name: np.mean([metric.values[row.name] for metric in by_share], axis=0) for row in plan.rows}
        missed = {row.name: np.mean([metric.missed[row.name] for metric in by_share], axis=0) for row in plan.rows}
        yield from (Metric(ROUNDS, mean, target, missed=missed), *by_share)


def _rounds_metric(watched: Frame, target: float, share: float, plan: Plan) -> Metric:
    lines = watched[(watched["target"] == target) & (watched["share"] == share)]
    return Metric(ROUNDS, by_row(lines, "restricted", plan), target, share, by_row(lines, "missed", plan))


def by_row(frame: Frame, column: str, plan: Plan) -> dict[str, Vector]:
    """A column as one value per row and seed; else NaN."""
    known = {(row, seed): float(value) for row, seed, value in frame[["row", "seed", column]].itertuples(index=False)}
    return {row.name: np.array([known.get((row.name, seed), math.nan) for seed in plan.seeds]) for row in plan.rows}


def _lines(metric: Metric, baseline: str) -> Iterator[Line]:
    """A line per row; means, differences and misses are over the seeds that row and baseline both have."""
    base = metric.values[baseline]
    tests = {row: paired(values - base) for row, values in metric.values.items() if row != baseline}
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    about = {"measure": metric.name, "target": metric.target, "share": metric.share, "better": metric.better}
    for row, values in metric.values.items():
        both = ~np.isnan(values) & ~np.isnan(base)
        means = {"mean": _mean(values[both]), "baseline": _mean(base[both]), "seeds": int(both.sum())}
        missed = metric.missed[row][both] if metric.missed else np.full(1, math.nan)
        censored = {"censored": float((missed > 0).sum()) if metric.missed else math.nan}
        line = {"row": row} | about | means | censored
        if row == baseline:
            yield line | {"verdict": BASELINE}
            continue
        test, p_holm = tests[row], float(corrected[row])
        effect = {"difference": test.difference, "low": test.low, "high": test.high, "sd": test.sd}
        never = bool((missed == 1).all()) and test.sd == 0 == test.difference
        verdict = NEVER if never else judge(test, p_holm, metric.better)
        yield line | effect | {"p": test.p, "p_holm": p_holm, "verdict": verdict}


def judge(test: Paired, p_holm: float, better: Better) -> str:
    """The verdict on a paired difference, in words.

    - `the same`: no seed differs.
    - `too few seeds`: fewer than five; their interval covers with a chance of less than 90 % (`interval`).
    - `inside the noise`: the interval contains 0.
    - `better`, `worse`: it does not, and `p_holm`, corrected for the number of rows, is at most 0.05.
    - `leans better`, `leans worse`: it does not, but `p_holm` is above 0.05.
    """
    if test.sd == 0 == test.difference:
        return SAME
    if test.seeds < FEWEST:
        return TOO_FEW
    if test.low <= 0 <= test.high:
        return NOISE
    word = "better" if (test.difference > 0) == (better == "higher") else "worse"
    return word if p_holm <= ALPHA else f"leans {word}"


def effect_cells(line: Mapping[str, Any], digits: int, sign: int = 1) -> tuple[str, str, str, str]:
    """The cells difference, interval, p and verdict; `sign` -1 turns rounds needed into rounds saved."""
    if line["verdict"] == BASELINE:
        return "", "", "", BASELINE
    difference = number_text(sign * line["difference"], digits, "+")
    if math.isnan(line["low"]):
        return difference, "", "", line["verdict"]
    low, high = (number_text(end, digits, "+") for end in sorted((sign * line["low"], sign * line["high"])))
    return difference, f"[{low}, {high}]", f"{line['p']:.3g} ({line['p_holm']:.3g})", line["verdict"]


def _mean(values: Vector) -> float:
    return float(values.mean()) if len(values) else math.nan
