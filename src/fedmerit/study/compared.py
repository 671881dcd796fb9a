"""Rows of a study against its baseline: measure by measure, over the seeds that both have finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.store.frames import Frame, Line, make_frame
from fedmerit.study.figures import MEASURES, Better, better
from fedmerit.study.plan import Plan
from fedmerit.study.statistics import ALPHA, Paired, holm, paired, restricted

ROUNDS = "rounds"
FEWEST = 5
"""Seeds below which there is no verdict."""

BASELINE, SAME, NOISE, NEVER, TOO_FEW = "baseline", "the same", "inside the noise", "not reached", "too few seeds"
COLUMNS = (
    *("row", "measure", "target", "share", "better", "seeds", "mean", "baseline", "difference"),
    *("low", "high", "sd", "p", "p_holm", "censored", "verdict"),
)

Values: TypeAlias = Mapping[str, Vector]
"""Of each row, one value per seed; NaN where the run is not finished, or where the value is not known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of all rows; for rounds to target also which target, which share, and in which seeds it was missed.

    A share of NaN stands for the mean over all shares; `missed` is then the part of them that was missed, 0..1.
    """

    name: str
    values: Values
    target: float = math.nan
    share: float = math.nan
    missed: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def better(self) -> Better:
        """Which way."""
        return "lower" if self.name == ROUNDS else better(self.name)


def compare_rows(measures: Sequence[Measured], baseline: str) -> Frame:
    """A line per row and measure: mean, paired difference with its interval, p, Holm's p over the rows, a verdict."""
    return make_frame([line for measure in measures for line in _lines(measure, baseline)], COLUMNS)


def of_figures(figures: Frame, plan: Plan) -> Iterator[Measured]:
    """Every measure of a study's figures."""
    finished = figures[figures["finished"]]
    audits = [name for name in figures.columns if name.startswith(("gap ", "audit "))]
    for name in [*MEASURES, *audits]:
        yield Measured(name, _table(finished, name, plan))


def of_reached(reached: Frame, plan: Plan) -> Iterator[Measured]:
    """Rounds to target: for each target the mean over the shares, then each share; restricted to the horizon."""
    watched = reached.assign(
        restricted=restricted(reached["rounds"].to_numpy(), reached["horizon"].to_numpy()),
        missed=reached["rounds"].isna(),
    )
    for target in plan.targets:
        cells = [_cell(watched, target, share, plan) for share in plan.shares]
        mean = {row.name: np.mean([cell.values[row.name] for cell in cells], axis=0) for row in plan.rows}
        missed = {row.name: np.mean([cell.missed[row.name] for cell in cells], axis=0) for row in plan.rows}
        yield from (Measured(ROUNDS, mean, target, missed=missed), *cells)


def _cell(watched: Frame, target: float, share: float, plan: Plan) -> Measured:
    cell = watched[(watched["target"] == target) & (watched["share"] == share)]
    return Measured(ROUNDS, _table(cell, "restricted", plan), target, share, _table(cell, "missed", plan))


def _table(frame: Frame, name: str, plan: Plan) -> dict[str, Vector]:
    """One value per row and seed; NaN where there is none."""
    known = {(row, seed): float(value) for row, seed, value in frame[["row", "seed", name]].itertuples(index=False)}
    return {row.name: np.array([known.get((row.name, seed), math.nan) for seed in plan.seeds]) for row in plan.rows}


def _lines(measure: Measured, baseline: str) -> Iterator[Line]:
    base = measure.values[baseline]
    tests = {row: paired(values - base) for row, values in measure.values.items() if row != baseline}
    corrected = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    about = {"measure": measure.name, "target": measure.target, "share": measure.share, "better": measure.better}
    for row, values in measure.values.items():
        both = ~np.isnan(values) & ~np.isnan(base)
        means = {"mean": _mean(values[both]), "baseline": _mean(base[both]), "seeds": int(both.sum())}
        missed = measure.missed[row][both] if measure.missed else np.full(1, math.nan)
        censored = {"censored": float((missed > 0).sum()) if measure.missed else math.nan}
        line = {"row": row} | about | means | censored
        if row == baseline:
            yield line | {"verdict": BASELINE}
            continue
        test, p = tests[row], float(corrected[row])
        effect = {"difference": test.difference, "low": test.low, "high": test.high, "sd": test.sd}
        never = bool((missed == 1).all()) and test.sd == 0 == test.difference
        verdict = NEVER if never else judge(test, p, measure.better)
        yield line | effect | {"p": test.p, "p_holm": p, "verdict": verdict}


def judge(test: Paired, p_holm: float, better: Better) -> str:
    """In words: by the interval; `leans` where p, corrected for the number of rows, does not (yet) say so too.

    Below five seeds an interval covers with a chance of less than 90 % at best, whatever it says (`interval`).
    """
    if test.sd == 0 == test.difference:
        return SAME
    if test.seeds < FEWEST:
        return TOO_FEW
    if test.low <= 0 <= test.high:
        return NOISE
    word = "better" if (test.difference > 0) == (better == "higher") else "worse"
    return word if p_holm <= ALPHA else f"leans {word}"


def _mean(values: Vector) -> float:
    return float(values.mean()) if len(values) else math.nan
