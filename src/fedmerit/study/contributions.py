"""Contributions of a run: what every client's updates added, in all and in a round; for programs and for readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from fedmerit.core.facts import CONTRIBUTION
from fedmerit.core.types import ClientId
from fedmerit.errors import DataError
from fedmerit.store.ledger import Ledger, WeightColumns
from fedmerit.study.text_table import TextTable

RULE = "what updates added to the round's model on the server's rows, summed over rounds; below 0: took away"


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


def contributions_dict(ledger: Ledger) -> dict[str, Any]:
    """Contributions as JSON has them; an error that says how to measure them where the run did not."""
    names, accounts = ledger.names(), contributions_of(ledger)
    if not accounts:
        raise DataError(
            "this run measured no contributions; run it with recipe.stages = ['contribution:shapley'] and "
            "task.server = 1000, or with ['contribution:cosine'], which needs no rows of the server"
        )
    return {
        "rule": RULE,
        "rounds": ledger.last_round(),
        "methods": list(accounts[0].total),
        "clients": [{**asdict(one), "name": names[one.client]} for one in accounts],
    }


def contributions_screen(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What the screen shows: totals, and the mean weight that was given for them."""
    methods = found["methods"]
    rows = [
        (
            one["name"],
            str(one["rounds"]),
            f"{one['weight']:.2%}",
            *(f"{one['total'][method]:+.4f}" for method in methods),
        )
        for one in found["clients"]
    ]
    title = f"contributions over {found['rounds']} rounds"
    yield TextTable(title, ("client", "rounds", "mean weight", *methods), tuple(rows)).screen()
    yield Text(RULE, "dim")
