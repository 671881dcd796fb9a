"""Cells: means over seeds with their intervals, rounds to target with their censoring, gains paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.measures import rounds_to_target
from fedmerit.core.types import Vector
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.statistics import interval, paired, restricted
from fedmerit.study.study import Study
from fedmerit.study.study_folder import Member
from fedmerit.study.verdicts import FEWEST

UNKNOWN = "-"
LEGEND = (
    "in brackets: 95% bootstrap interval over the seeds (docs/study.md); * the interval of a difference leaves out 0, "
    f"with at least {FEWEST} seeds"
)
CENSORED = (
    "> T: not reached within T rounds; a number after > is a mean in which such runs count as T. Gains with them are "
    "bounds: ≥ where the baseline was late, ≤ where the row was, ≈ where both were"
)


@dataclass(frozen=True, slots=True)
class Times:
    """Rounds to a target, one value per seed: as far as they were watched, and in which seeds it was missed."""

    values: Vector
    missed: NDArray[np.bool_]
    horizon: int

    @property
    def known(self) -> NDArray[np.bool_]:
        """Seeds whose run is finished."""
        return ~np.isnan(self.values)

    @property
    def never(self) -> bool:
        """Missed by all runs."""
        return bool((self.values[self.known] == self.horizon).all() and self.missed[self.known].all())


def times(study: Study, row: str, target: float, shares: Sequence[float]) -> Times:
    """Of a row; the mean over the shares of devices, missed where one of them was.

    Where none of its runs has finished, as far as the one with the fewest rounds has come.
    """
    begun = [one for one in study.runs if one.row == row and one.begun]
    if begun and all(str(one) in study.unfinished for one in begun):
        return _so_far(begun, target, shares)
    found = study.reached
    mine = found[(found["row"] == row) & (found["target"] == target) & found["share"].isin(shares)]
    watched = restricted(mine["rounds"].to_numpy(), study.horizon)
    seeds = mine.assign(watched=watched, missed=mine["rounds"].isna()).groupby("seed")
    order = list(study.plan.seeds)
    values = seeds["watched"].mean().reindex(order).to_numpy(dtype=np.float64)
    missed = seeds["missed"].any().reindex(order, fill_value=False).to_numpy(dtype=np.bool_)
    return Times(values, missed, study.horizon)


def _so_far(begun: Sequence[Member], target: float, shares: Sequence[float]) -> Times:
    horizon, found = min(one.rounds for one in begun), []
    for one in begun:
        with open_ledger(one.folder) as ledger:
            rounds, local = ledger.local_accuracy()
        reached = [rounds_to_target(rounds, local, target, share) for share in shares] if rounds else [None]
        found.append([np.nan if at is None or at > horizon else float(at) for at in reached])
    watched = np.array([restricted(at, horizon).mean() for at in found])
    return Times(watched, np.array([bool(np.isnan(at).any()) for at in found]), horizon)


def mean_times(several: Sequence[Times]) -> Times:
    """Seed by seed the mean of several rows."""
    values = np.mean([one.values for one in several], axis=0)
    return Times(values, np.any([one.missed for one in several], axis=0), several[0].horizon)


def mean_cell(values: Sequence[float] | Vector, digits: int = 1) -> str:
    """A mean over seeds and its interval; seeds without a value do not count."""
    array = np.asarray(values, dtype=np.float64)
    known = array[~np.isnan(array)]
    return f"{known.mean():.{digits}f}{_bracket(*interval(known), digits)}" if len(known) else UNKNOWN


def difference_cell(differences: Sequence[float] | Vector, digits: int = 1) -> str:
    """A mean of paired differences and its interval, with a star where that leaves out 0."""
    test = paired(differences)
    if not test.seeds:
        return UNKNOWN
    star = "*" if test.seeds >= FEWEST and (test.low > 0 or test.high < 0) else ""
    return f"{test.difference + 0.0:+.{digits}f}{star}{_bracket(test.low, test.high, digits, '+')}"


def rounds_cell(row: Times) -> str:
    """Mean rounds to target."""
    if not row.known.any():
        return UNKNOWN
    if row.never:
        return f"> {row.horizon}"
    return ("> " if row.missed[row.known].any() else "") + mean_cell(row.values)


def gain_cell(base: Times, row: Times) -> str:
    """Rounds of the baseline minus those of the row, paired by seed."""
    both = base.known & row.known
    if both.any() and base.never and row.never:
        return f"both > {row.horizon}"
    late = bool(base.missed[both].any()), bool(row.missed[both].any())
    sign = {(True, False): "≥ ", (False, True): "≤ ", (True, True): "≈ "}.get(late, "")
    return sign + difference_cell(base.values - row.values)


def printed(value: float | None, form: str = "g") -> str:
    """A published number; a dash where one is printed."""
    return UNKNOWN if value is None else format(value, form)


def _bracket(low: float, high: float, digits: int, sign: str = "") -> str:
    """Nothing where one seed gives no interval."""
    if np.isnan(low):
        return ""
    return f" [{low + 0.0:{sign}.{digits}f}, {high + 0.0:{sign}.{digits}f}]"
