"""Contributions of a run, read from its ledger: what every client's updates added, round by round and in all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedmerit.core.facts import CONTRIBUTION
from fedmerit.core.types import ClientId
from fedmerit.store.ledger import Ledger
from fedmerit.store.weight_columns import WeightColumns


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
