"""M2F's Tables 2 and 3 from a study: what became of each client in each run, and whether quality pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.store.ledger import Ledger
from fedmerit.study.fairness import Account, fairness_of, rank_correlation
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from reproductions.published import M2fClient, published
from reproductions.reproduce.cells import LEGEND, Claim, Times, claims_table, mean_cell, rounds_cell
from reproductions.reproduce.footnotes import Footnotes
from reproductions.reproduce.reproduction import Result, Setting, Studies

LEVEL = 0.9
"""A client has converged when its accuracy stays at this level."""
HEADER = ("client", "epochs", "rows", "rate", "average accuracy, %", "convergent iteration", "reached 90 %")
REWARDED = ("keep", "reset")
"""The rows with rewards; `fedavg` is the third."""
LATE, LOW, FASTEST = "m2f-late-average", "m2f-two-low-factors", "m2f-fastest"
ACCURATE, FAST = 24, (35, 39)
"""Clients of Table 3: with two low factors and the second-best accuracy; equally fast."""
GROUPS = {2: range(20), 3: range(20, 40)}
"""The clients of the table's label group."""
CENSORED = "> T: not within T iterations in any seed; a number after > is a mean in which such seeds count as T"


@dataclass(frozen=True, slots=True)
class RunClients:
    """The clients of one run: accounts, epochs, rows, test rows, and their accuracy curves (rounds x clients)."""

    accounts: Sequence[Account]
    epochs: Vector
    rows: Vector
    curves: Matrix
    tests: Vector

    def pooled(self, clients: slice) -> Vector:
        """The accuracy on the test rows of these clients taken together, round by round."""
        sizes = self.tests[clients]
        right: Vector = np.nansum(self.curves[:, clients] * sizes, axis=1) / sizes.sum()
        return right

    @property
    def oscillation(self) -> Vector:
        """The mean change of each client's accuracy from one round to the next over the last half."""
        last_half = self.curves[len(self.curves) // 2 :]
        change: Vector = np.abs(np.diff(last_half, axis=0)).mean(axis=0)
        return change


def finished_runs(study: Study, row: str) -> list[RunClients]:
    """The runs of a row in the order of the seeds; as runs are paired, only seeds that all rows have finished."""
    unfinished = {run.seed for run in study.runs if str(run) in study.unfinished}
    seeds = [run.seed for run in study.runs if run.row == row and run.seed not in unfinished]
    return [_run_clients(study.run(row, seed).ledger) for seed in seeds]


def _run_clients(ledger: Ledger) -> RunClients:
    accounts = fairness_of(ledger, LEVEL).accounts
    facts: dict[str, Vector] = {name: np.full(len(accounts), np.nan) for name in ("epochs", "samples")}
    for index in range(1, ledger.last_round() + 1):
        for client in ledger.weights(index):
            for name, values in facts.items():
                values[client.id] = client.facts.get(name, np.nan)
    tests = np.zeros(len(accounts))
    for _, tested, _, size in ledger.evaluations():
        tests[tested] = size
    return RunClients(accounts, facts["epochs"], facts["samples"], ledger.local_accuracy()[1], tests)


def times_converged(runs: Sequence[RunClients], client: int, horizon: int) -> Times:
    """The iteration from which on a client's accuracy stays at the level, by run."""
    return _times([run.accounts[client].convergence.stays for run in runs], horizon)


def times_reached(runs: Sequence[RunClients], client: int, horizon: int) -> Times:
    """The iteration in which a client's accuracy first reaches the level, by run."""
    return _times([run.accounts[client].convergence.reached for run in runs], horizon)


def _times(iterations: Sequence[int | None], horizon: int) -> Times:
    values = np.array([horizon if index is None else index for index in iterations], dtype=np.float64)
    return Times(values, np.array([index is None for index in iterations], dtype=np.bool_), horizon)


@dataclass(frozen=True, slots=True)
class ClientTable:
    """The second experiment [M2F, sec. 5.2] as the paper's table of this number."""

    number: int

    def __call__(self, setting: Setting, studies: Studies) -> Result:
        """The clients that the paper names, then its claims on all clients of the group."""
        (study,) = studies.values()
        runs = {row: finished_runs(study, row) for row in study.rows}
        notes = Footnotes((LATE,) if self.number == 2 else (LATE, LOW, FASTEST))
        lines = [
            line
            for client in published().m2f_clients[self.number]
            for line in (
                _published(client, notes),
                *(_measured(row, runs[row], client.number, study) for row in study.rows),
            )
        ]
        title = f"Table {self.number}: accuracy and speed of single clients"
        table = TextTable(title, HEADER, tuple(lines), notes.below)
        claims = [claim for row in REWARDED if row in runs for claim in _claims(self.number, row, runs[row])]
        return Result((table, claims_table(claims)), notes=(LEGEND, CENSORED))


def _published(client: M2fClient, notes: Footnotes) -> tuple[str, ...]:
    name, convergent = f"{client.number}, published", str(client.convergent)
    return (
        notes(LOW, name) if client.number == ACCURATE else name,
        str(client.epochs),
        f"{client.samples:,}",
        f"{client.rate:g}",
        notes(LATE, f"{client.accuracy:.2f}"),
        notes(FASTEST, convergent) if client.number in FAST else convergent,
        str(client.reached),
    )


def _measured(row: str, runs: Sequence[RunClients], client: int, study: Study) -> tuple[str, ...]:
    averages = [run.accounts[client].convergence.average for run in runs]
    rates = [run.accounts[client].rounds / study.horizon for run in runs]
    return (
        row,
        mean_cell([run.epochs[client] for run in runs]),
        mean_cell([run.rows[client] for run in runs], 0),
        f"{np.mean(rates):g}" if rates else "-",
        mean_cell([np.nan if average is None else 100 * average for average in averages], 2),
        rounds_cell(times_converged(runs, client, study.horizon)),
        rounds_cell(times_reached(runs, client, study.horizon)),
    )


def _claims(number: int, row: str, runs: Sequence[RunClients]) -> Iterator[Claim]:
    """Low factors mean a longer time and a lower accuracy; as rank correlations with epochs x rows x rate."""
    speed, accuracy = (_correlations(runs, GROUPS[number], name) for name in ("speed", "accuracy"))
    yield Claim("who puts in more converges sooner: rank correlation with the iteration < 0", row, -speed)
    yield Claim("who puts in more ends more accurate: rank correlation with final accuracy > 0", row, accuracy)


def _correlations(runs: Sequence[RunClients], group: Sequence[int], outcome: str) -> Vector:
    """The rank correlation of the group's contributions with speed or accuracy, by run."""
    correlations = []
    for run in runs:
        accounts = [run.accounts[client] for client in group]
        never = len(run.curves) + 1
        if outcome == "accuracy":
            values = [account.accuracy for account in accounts]
        else:
            values = [account.convergence.stays or never for account in accounts]
        correlations.append(rank_correlation([account.contribution for account in accounts], values))
    return np.array(correlations, dtype=np.float64)
