"""M2F's Tables 2 and 3 from a study: a line per client and way, and whether quality pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.papers.published import M2fClient, published
from fedmerit.papers.reproduce.cells import LEGEND, mean_cell, rounds_cell
from fedmerit.papers.reproduce.claims import Claim, claims_table
from fedmerit.papers.reproduce.entry import Setting, Studies, Told
from fedmerit.papers.reproduce.m2f_accounts import Seen, look, reached, stays
from fedmerit.papers.reproduce.marks import Marks
from fedmerit.study.fairness import rank_correlation
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable

HEADER = ("client", "epochs", "rows", "rate", "average accuracy, %", "convergent iteration", "reached 90 %")
WAYS = ("keep", "reset")
LATE, LOW, FASTEST = "m2f-late-average", "m2f-two-low-factors", "m2f-fastest"
ACCURATE, FAST = 24, (35, 39)
"""Clients of Table 3: with two low factors and the second-best accuracy; equally fast."""
GROUPS = {2: range(20), 3: range(20, 40)}
"""The clients of the table's label group."""
CENSORED = "> T: not within T iterations in any seed; a number after > is a mean in which such seeds count as T"


@dataclass(frozen=True, slots=True)
class Clients:
    """How a study of the second experiment is told: by the number of the table."""

    number: int

    def __call__(self, setting: Setting, studies: Studies) -> Told:
        """The clients that the paper names, then its claims on all clients of the group."""
        (study,) = studies.values()
        runs = {row: look(study, row) for row in study.rows}
        marks = Marks((LATE,) if self.number == 2 else (LATE, LOW, FASTEST))
        lines = [
            line
            for client in published().m2f_clients[self.number]
            for line in (
                _published(client, marks),
                *(_line(row, runs[row], client.number, study) for row in study.rows),
            )
        ]
        title = f"Table {self.number}: accuracy and speed of single clients"
        table = TextTable(title, HEADER, tuple(lines), marks.below)
        claims = [claim for row in WAYS if row in runs for claim in _claims(self.number, row, runs[row])]
        return Told((table, claims_table(claims)), notes=(LEGEND, CENSORED))


def _published(client: M2fClient, marks: Marks) -> tuple[str, ...]:
    name, convergent = f"{client.number}, published", str(client.convergent)
    return (
        marks(LOW, name) if client.number == ACCURATE else name,
        str(client.epochs),
        f"{client.samples:,}",
        f"{client.rate:g}",
        marks(LATE, f"{client.accuracy:.2f}"),
        marks(FASTEST, convergent) if client.number in FAST else convergent,
        str(client.reached),
    )


def _line(row: str, runs: Sequence[Seen], client: int, study: Study) -> tuple[str, ...]:
    averages = [seen.accounts[client].convergence.average for seen in runs]
    rates = [seen.accounts[client].rounds / study.horizon for seen in runs]
    return (
        row,
        mean_cell([seen.epochs[client] for seen in runs]),
        mean_cell([seen.rows[client] for seen in runs], 0),
        f"{np.mean(rates):g}" if rates else "-",
        mean_cell([np.nan if one is None else 100 * one for one in averages], 2),
        rounds_cell(stays(runs, client, study.horizon)),
        rounds_cell(reached(runs, client, study.horizon)),
    )


def _claims(number: int, row: str, runs: Sequence[Seen]) -> Iterator[Claim]:
    """Two or more low factors: longer time, lower accuracy; as rank correlations with epochs x rows x rate."""
    group = list(GROUPS[number])
    speed, accuracy = (_correlations(runs, group, name) for name in ("speed", "accuracy"))
    yield Claim("who puts in more converges sooner: rank correlation with the iteration < 0", row, -speed)
    yield Claim("who puts in more ends more accurate: rank correlation with final accuracy > 0", row, accuracy)


def _correlations(runs: Sequence[Seen], group: Sequence[int], what: str) -> Vector:
    found = []
    for seen in runs:
        mine = [seen.accounts[client] for client in group]
        last = len(seen.curves) + 1
        came = [one.accuracy if what == "accuracy" else (one.convergence.stays or last) for one in mine]
        found.append(rank_correlation([one.contribution for one in mine], came))
    return np.array(found, dtype=np.float64)
