"""Contributions of a run's clients: what their updates added to the model, in total and per round."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from fedmerit.core.facts import CONTRIBUTION
from fedmerit.core.types import ClientId
from fedmerit.errors import DataError
from fedmerit.store.ledger import Ledger
from fedmerit.study.text_table import TextTable

RULE = "contribution: what a client's updates added by this method, summed over rounds; negative: they did harm"


@dataclass(frozen=True, slots=True)
class ClientAccount:
    """Contribution of one client over a run, by method: the total, and the mean over its rounds.

    The total grows with the number of rounds in which a client took part; the mean does not. `weight` is its mean
    weight.
    """

    client: ClientId
    rounds: int
    weight: float
    total: dict[str, float]
    mean: dict[str, float]


def contributions_of(ledger: Ledger) -> list[ClientAccount]:
    """Compute the contribution of each weighted client, largest total first; empty if none was measured."""
    values: dict[ClientId, dict[str, list[float]]] = {}
    weights: dict[ClientId, list[float]] = {}
    for row in ledger.rounds():
        columns = ledger.weight_columns(row["round"])
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
    return sorted(accounts, key=lambda account: (-next(iter(account.total.values())), account.client))


def contributions_dict(ledger: Ledger) -> dict[str, Any]:
    """Contributions for JSON; raise a DataError if the run did not measure them."""
    names, accounts = ledger.names(), contributions_of(ledger)
    if not accounts:
        raise DataError(
            "this run did not measure contributions; run it with recipe.stages = ['contribution:early-server'] and "
            "task.server = 200, or with ['contribution:early'], which needs no server rows"
        )
    return {
        "rule": RULE,
        "rounds": ledger.last_round(),
        "methods": list(accounts[0].total),
        "clients": [{**asdict(account), "name": names[account.client]} for account in accounts],
    }


def contributions_screen(contributions: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Make the table of `contributions_dict`: mean weight and total contribution of each client."""
    methods = contributions["methods"]
    rows = [
        (
            client["name"],
            str(client["rounds"]),
            f"{client['weight']:.2%}",
            *(f"{client['total'][method]:+.4f}" for method in methods),
        )
        for client in contributions["clients"]
    ]
    title = f"contributions over {contributions['rounds']} rounds"
    yield TextTable(title, ("client", "rounds", "mean weight", *methods), tuple(rows)).screen()
    yield Text(RULE, "dim")
