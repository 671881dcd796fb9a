"""Gains: what clients have of collaborating, against what they brought into it and what they had alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy

from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import UserError
from fedmerit.store.ledger import Ledger
from fedmerit.store.weight_columns import contributions_of
from fedmerit.study.fairness import rank_correlation
from fedmerit.study.study_folder import RUNS, STUDY, members, read_plan


@dataclass(frozen=True, slots=True)
class Gains:
    """What each client brought, had alone and ended with; clients that a test does not know are NaN.

    Attributes:
        by: what contribution is: a method of `core.contribution`, summed over rounds, or the rows worked through.
        contribution: what each client brought.
        standalone: its accuracy alone, on the same budget.
        final: its accuracy at the end.
        riders: planted free riders.

    >>> gains = Gains("rows", np.array([1.0, 2, 3]), np.array([0.5, 0.6, 0.7]), np.array([0.6, 0.8, 0.7]), riders=(0,))
    >>> gains.gain.round(2).tolist(), round(gains.mean, 2), gains.below, round(gains.of_riders, 2)
    ([0.1, 0.2, 0.0], 0.1, (), 0.1)
    """

    by: str
    contribution: Vector
    standalone: Vector
    final: Vector
    riders: tuple[ClientId, ...] = ()

    @property
    def gain(self) -> Vector:
        """The accuracy at the end minus that alone."""
        return self.final - self.standalone

    @property
    def mean(self) -> float:
        """The mean collaboration gain [CYCle]."""
        return _mean(self.gain)

    @property
    def spread(self) -> float:
        """The standard deviation of the gains over clients [CYCle]."""
        gain = self.gain[~np.isnan(self.gain)]
        return float(gain.std()) if len(gain) else math.nan

    @property
    def below(self) -> tuple[ClientId, ...]:
        """Clients that were better off alone."""
        return tuple(np.flatnonzero(self.gain < 0).tolist())

    @property
    def of_riders(self) -> float:
        """The mean gain of the planted free riders; NaN where there are none."""
        return _mean(self.gain[list(self.riders)])

    @property
    def pearson(self) -> float:
        """The correlation of contribution with gain."""
        return correlation(self.contribution, self.gain)

    @property
    def spearman(self) -> float:
        """The rank correlation of contribution with gain."""
        return rank_correlation(self.contribution.tolist(), self.gain.tolist())

    @property
    def pearson_final(self) -> float:
        """The correlation of contribution with the accuracy at the end."""
        return correlation(self.contribution, self.final)

    @property
    def pearson_standalone(self) -> float:
        """The correlation of the accuracy alone with that at the end: what [RFFL] and [CGSV] call fairness."""
        return correlation(self.standalone, self.final)


def correlation(one: Vector, other: Vector) -> float:
    """Pearson's r over the pairs without NaN; NaN where there are fewer than three, or one side is constant.

    >>> round(correlation(np.array([1.0, 2, 4]), np.array([1.0, 2, 3])), 3)
    0.982
    """
    known = ~(np.isnan(one) | np.isnan(other))
    x, y = one[known], other[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.pearsonr(x, y).statistic)


def gains_of(
    ledger: Ledger, standalone: Ledger, measured: Ledger | None = None, riders: Sequence[ClientId] = ()
) -> Gains:
    """The gains of a run over one in which the same clients were alone, for as many rounds.

    Contribution is what another run, `measured`, or this one measured of it; where none did, the rows worked through.

    >>> gains_of(run.ledger, alone.ledger).below  # doctest: +SKIP
    """
    names = ledger.names()
    for other in (standalone, measured):
        if other is not None and other.names() != names:
            raise UserError("gains compare runs of the same clients, and these have other names")
    (rounds, final), (others, alone) = ledger.local_accuracy(), standalone.local_accuracy()
    if not rounds or not others or rounds[-1] != others[-1]:
        raise UserError(
            f"a gain is one on the same budget: the run was last tested after round {max(rounds, default=0)}, "
            f"the standalone one after round {max(others, default=0)}; run both for as many rounds"
        )
    by, contribution = _contribution(measured or ledger, len(names))
    return Gains(by, contribution, alone[-1], final[-1], tuple(riders))


def standalone_beside(run: Path) -> Path | None:
    """The run of a study's row `standalone` with the seed of this one; None where it is in no study, or that has none.

    >>> standalone_beside(Path("runs/alone")) is None
    True
    """
    folder = run.resolve().parent.parent
    if run.resolve().parent.name != RUNS or not (folder / STUDY).is_file():
        return None
    found = members(read_plan(folder), folder)
    seeds = [one.seed for one in found if one.folder.resolve() == run.resolve()]
    alone = [one for one in found if one.config.recipe.name == "standalone" and one.seed in seeds and one.finished]
    return alone[0].folder if alone else None


def _contribution(ledger: Ledger, clients: int) -> tuple[str, Vector]:
    values, accounts = np.full(clients, np.nan), contributions_of(ledger)
    if not accounts:
        work = ledger.work_done()
        return "rows", np.array([work.get(client, (0, 0.0))[1] for client in range(clients)])
    by = next(iter(accounts[0].total))
    for account in accounts:
        values[account.client] = account.total[by]
    return by, values


def _mean(values: Vector) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
