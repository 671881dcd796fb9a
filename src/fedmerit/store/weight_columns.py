"""The weights of a round column by column, and what clients contributed over rounds: for tables, pages and frames.

`Ledger.weights` gives the same as one value per client. Here the texts of a round are parsed as one list.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import CONTRIBUTION
from fedmerit.core.types import ClientId, Vector

if TYPE_CHECKING:
    from fedmerit.store.ledger import Ledger

QUERY = """SELECT client, score, weight, grp, uncapped, facts, criteria, normalised
FROM weights WHERE round = ? ORDER BY client"""


@dataclass(frozen=True, slots=True)
class WeightColumns:
    """How the clients of a round came to their weights: an array per column, in client order; NaN where unknown.

    `uncapped` is None where the recipe has no cap.
    """

    ids: tuple[ClientId, ...]
    facts: dict[str, Vector]
    criteria: dict[str, Vector]
    normalised: dict[str, Vector]
    scores: Vector
    weights: Vector
    groups: NDArray[np.int64]
    uncapped: Vector | None

    @property
    def earned(self) -> Vector:
        """The weights before any cap."""
        return self.weights if self.uncapped is None else self.uncapped


def read_columns(db: sqlite3.Connection, index: int) -> WeightColumns:
    """The weights of a round; no rows where nobody could be weighed."""
    rows = db.execute(QUERY, (index,)).fetchall()
    ids, scores, weights, groups, uncapped, *texts = zip(*rows, strict=True) if rows else ((),) * 8
    facts, criteria, normalised = map(_by_name, texts)
    return WeightColumns(
        ids,
        facts,
        criteria,
        normalised,
        np.array(scores, dtype=np.float64),
        np.array(weights, dtype=np.float64),
        np.array(groups, dtype=np.int64),
        None if None in uncapped or not rows else np.array(uncapped, dtype=np.float64),
    )


def _by_name(texts: Sequence[str]) -> dict[str, Vector]:
    """A column per name of JSON objects, in the order in which names come; NaN where an object lacks it."""
    rows: list[dict[str, float]] = json.loads(f"[{','.join(texts)}]")
    keys = dict.fromkeys(map(tuple, rows))  # one, except where a client reported less or more than the others
    names = list(dict.fromkeys(name for some in keys for name in some))
    values = [[*row.values()] if len(keys) == 1 else [row.get(name) for name in names] for row in rows]
    return dict(zip(names, np.array(values, dtype=np.float64).T.copy(), strict=True)) if names else {}


@dataclass(frozen=True, slots=True)
class ClientAccount:
    """What one client added over a run, by method: in all, and in a round that it took part in.

    A sum grows with the rounds that a client was drawn for; the mean does not. `weight` is the mean of its weights.
    """

    client: ClientId
    rounds: int
    weight: float
    total: dict[str, float]
    mean: dict[str, float]


def contributions_of(ledger: Ledger) -> list[ClientAccount]:
    """A line per client that was weighed, the largest total by the first method first; none where none was measured."""
    return contribution_accounts([ledger.weight_columns(row["round"]) for row in ledger.rounds()])


def contribution_accounts(rounds: Iterable[WeightColumns]) -> list[ClientAccount]:
    """As `contributions_of`, of rounds that are read already."""
    values: dict[ClientId, dict[str, list[float]]] = {}
    weights: dict[ClientId, list[float]] = {}
    for columns in rounds:
        measured = {name: column for name, column in columns.facts.items() if name.startswith(CONTRIBUTION)}
        for place, client in enumerate(columns.ids):
            weights.setdefault(client, []).append(float(columns.weights[place]))
            for name, column in measured.items():
                if not np.isnan(column[place]):
                    added = values.setdefault(client, {}).setdefault(name.removeprefix(CONTRIBUTION), [])
                    added.append(float(column[place]))
    accounts = [
        ClientAccount(
            client,
            len(weights[client]),
            float(np.mean(weights[client])),
            {method: float(np.sum(added)) for method, added in methods.items()},
            {method: float(np.mean(added)) for method, added in methods.items()},
        )
        for client, methods in values.items()
    ]
    return sorted(accounts, key=lambda one: (-next(iter(one.total.values())), one.client))
