"""Contributions of a run for readers: JSON and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fedmerit.errors import DataError
from fedmerit.store.ledger import Ledger
from fedmerit.store.weight_columns import WeightColumns, contribution_accounts, contributions_of
from fedmerit.study.text_table import TextTable

RULE = "what updates added to the round's model on the server's rows, summed over rounds; below 0: took away"


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


def worth_rows(rounds: Iterable[WeightColumns]) -> dict[str, Any] | None:
    """Contributions as the page shows them beside the weights; None where the run measured none."""
    accounts = contribution_accounts(rounds)
    if not accounts:
        return None
    rows = [[one.client, one.weight, [float(f"{value:.4g}") for value in one.total.values()]] for one in accounts]
    return {"methods": list(accounts[0].total), "rows": rows}


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
