"""Cells: means over seeds, rounds to target with censoring, gains paired by seed; claims with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.measures import rounds_to_target
from fedmerit.core.types import Vector
from fedmerit.store.frames import Frame
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.plan import Plan
from fedmerit.study.statistics import interval, paired, restricted
from fedmerit.study.study_folder import Member
from fedmerit.study.text_table import TextTable
from fedmerit.study.verdicts import FEWEST, NOISE, TOO_FEW

UNKNOWN = "-"
SEEN, NOT_SEEN = "seen", "not seen"
LEGEND = (
    "in brackets: 95% bootstrap interval over the seeds (docs/compare.md); * the interval of a difference excludes 0, "
    f"with at least {FEWEST} seeds"
)
CENSORED = (
    "> T: not reached within T rounds; a number after > is a mean in which such runs count as T. Gains with them are "
    "bounds: ≥ where the baseline was late, ≤ where the row was, ≈ where both were"
)


@dataclass(frozen=True, slots=True)
class Times:
    """Rounds to a target, a value per seed; a seed that missed it within the horizon counts as the horizon."""

    values: Vector
    missed: NDArray[np.bool_]
    horizon: int

    @property
    def known(self) -> NDArray[np.bool_]:
        """Seeds whose run is finished."""
        return ~np.isnan(self.values)

    @property
    def never(self) -> bool:
        """Whether all runs missed the target."""
        return bool((self.values[self.known] == self.horizon).all() and self.missed[self.known].all())


class Runs(Protocol):
    """What rounds to target are read from: a `Study`, or runs that a file lists."""

    @property
    def plan(self) -> Plan: ...  # noqa: D102
    @property
    def rows(self) -> list[str]: ...  # noqa: D102
    @property
    def runs(self) -> Sequence[Member]: ...  # noqa: D102
    @property
    def unfinished(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def reached(self) -> Frame: ...  # noqa: D102
    @property
    def horizon(self) -> int: ...  # noqa: D102


def times(study: Runs, row: str, target: float, shares: Sequence[float]) -> Times:
    """Rounds of a row to a target, as a mean over the shares of devices; missed where one of the shares was.

    Where none of the row's runs has finished, the horizon is the number of rounds that all of them have played.
    """
    begun = [run for run in study.runs if run.row == row and run.begun]
    if begun and all(str(run) in study.unfinished for run in begun):
        return _times_so_far(begun, target, shares, or_equal=study.plan.or_equal)
    reached = study.reached
    of_row = reached[(reached["row"] == row) & (reached["target"] == target) & reached["share"].isin(shares)]
    watched = restricted(of_row["rounds"].to_numpy(), study.horizon)
    seeds = of_row.assign(watched=watched, missed=of_row["rounds"].isna()).groupby("seed")
    order = list(study.plan.seeds)
    values = seeds["watched"].mean().reindex(order).to_numpy(dtype=np.float64)
    missed = seeds["missed"].any().reindex(order, fill_value=False).to_numpy(dtype=np.bool_)
    return Times(values, missed, study.horizon)


def _times_so_far(begun: Sequence[Member], target: float, shares: Sequence[float], *, or_equal: bool) -> Times:
    horizon, by_run = min(run.rounds for run in begun), []
    for run in begun:
        with open_ledger(run.folder) as ledger:
            rounds, local = ledger.local_accuracy()
        reached = [
            rounds_to_target(rounds, local, target, share, or_equal=or_equal) if rounds else None for share in shares
        ]
        by_run.append([np.nan if at is None or at > horizon else float(at) for at in reached])
    watched = np.array([restricted(at, horizon).mean() for at in by_run])
    return Times(watched, np.array([bool(np.isnan(at).any()) for at in by_run]), horizon)


def mean_times(rows: Sequence[Times]) -> Times:
    """The mean of several rows, seed by seed."""
    values = np.mean([row.values for row in rows], axis=0)
    return Times(values, np.any([row.missed for row in rows], axis=0), rows[0].horizon)


def mean_cell(values: Sequence[float] | Vector, digits: int = 1) -> str:
    """A mean over seeds and its interval; seeds without a value do not count."""
    array = np.asarray(values, dtype=np.float64)
    known = array[~np.isnan(array)]
    return f"{known.mean():.{digits}f}{_bracket(*interval(known), digits)}" if len(known) else UNKNOWN


def difference_cell(differences: Sequence[float] | Vector, digits: int = 1) -> str:
    """A mean of paired differences and its interval, with a star where the interval leaves out 0."""
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
    """The interval in brackets; nothing for a single seed, which has none."""
    if np.isnan(low):
        return ""
    return f" [{low + 0.0:{sign}.{digits}f}, {high + 0.0:{sign}.{digits}f}]"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, the row of the study to check it on, and by how much it holds: a value per seed, above 0."""

    text: str
    row: str
    holds_by: Vector
    digits: int = 2

    @property
    def verdict(self) -> str:
        """By the interval over the seeds: above 0, around 0, or not above."""
        test = paired(self.holds_by)
        if test.seeds < FEWEST:
            return TOO_FEW
        if test.low > 0:
            return SEEN
        return NOISE if test.low <= 0 < test.high else NOT_SEEN


def claims_table(claims: Sequence[Claim]) -> TextTable:
    """A line per claim."""
    rows = [(claim.text, claim.row, difference_cell(claim.holds_by, claim.digits), claim.verdict) for claim in claims]
    below = (
        "holds by: above 0 where the claim holds; seen: its interval lies above 0; not seen: it does not reach above",
    )
    return TextTable("The paper's claims", ("claim", "row", "holds by", "verdict"), tuple(rows), below)
