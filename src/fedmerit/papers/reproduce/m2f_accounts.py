"""M2F's columns of every client and seed: epochs, rows, convergence, accuracy, how much its curve oscillates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.papers.reproduce.cells import Times
from fedmerit.store.ledger import Ledger
from fedmerit.study.fairness import Account, fairness_of
from fedmerit.study.study import Study

LEVEL = 0.9
"""The accuracy from which on a client has converged, if it stays."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: its clients' accounts, what they said of themselves, and their curves (rounds x clients)."""

    accounts: Sequence[Account]
    epochs: Vector
    rows: Vector
    curves: Matrix

    @property
    def wobble(self) -> Vector:
        """The mean change of each client's accuracy from one round to the next over the last half."""
        later = self.curves[len(self.curves) // 2 :]
        change: Vector = np.abs(np.diff(later, axis=0)).mean(axis=0)
        return change


def look(study: Study, row: str) -> list[Seen]:
    """All finished runs of a row, in the order of the seeds."""
    return [_seen(study.run(one.row, one.seed).ledger) for one in study.runs if _counts(study, one.row, one.seed, row)]


def _counts(study: Study, row: str, seed: int, asked: str) -> bool:
    """Runs are paired: a seed counts where all rows have finished."""
    unfinished = {one.seed for one in study.runs if str(one) in study.unfinished}
    return row == asked and seed not in unfinished


def _seen(ledger: Ledger) -> Seen:
    accounts = fairness_of(ledger, LEVEL).accounts
    facts: dict[str, Vector] = {name: np.full(len(accounts), np.nan) for name in ("epochs", "samples")}
    for round in range(1, ledger.last_round() + 1):
        for one in ledger.earned(round):
            for name, values in facts.items():
                values[one.id] = one.facts.get(name, np.nan)
    return Seen(accounts, facts["epochs"], facts["samples"], ledger.local_accuracy()[1])


def stays(runs: Sequence[Seen], client: int, horizon: int) -> Times:
    """The iteration from which a client's accuracy stays at the level."""
    return _times([seen.accounts[client].convergence.stays for seen in runs], horizon)


def reached(runs: Sequence[Seen], client: int, horizon: int) -> Times:
    """The iteration in which it is first there."""
    return _times([seen.accounts[client].convergence.reached for seen in runs], horizon)


def _times(found: Sequence[int | None], horizon: int) -> Times:
    values = np.array([horizon if one is None else one for one in found], dtype=np.float64)
    return Times(values, np.array([one is None for one in found], dtype=np.bool_), horizon)
