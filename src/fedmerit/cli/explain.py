"""`fedmerit explain`: why clients got their weights; suspects, contributions and fairness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmerit.cli.app import Client, Json, Reading, RunFolder, app, open_run, out_console, show
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedmerit.store.ledger import Ledger


@app.command(cls=Reading, epilog="Example:  fedmerit explain runs/first --round 10 --client 17")
def explain(
    folder: RunFolder,
    client: Client = None,
    number: Annotated[int | None, typer.Option("--round", help="A round; default: the last.")] = None,
    suspects: Annotated[bool, typer.Option("--suspects", help="List clients that keep standing out.")] = False,
    contributions: Annotated[bool, typer.Option("--contributions", help="What each client's updates added.")] = False,
    fairness: Annotated[bool, typer.Option("--fairness", help="Compare contributions with accuracy.")] = False,
    level: Annotated[float, typer.Option(help="With --fairness: converged from here on.")] = 0.9,
    as_json: Json = False,
) -> None:
    """Say why each client got its weight.

    With --client in words: what mattered most, the arithmetic, and what would change the weight. --suspects lists the
    clients whose updates keep standing out, and the evidence. --contributions needs a run with recipe.stages =
    ["contribution:shapley"], or another method. --fairness compares what clients contribute with their accuracy.
    """
    if suspects + contributions + fairness > 1:
        raise ConfigError("give one of --suspects, --contributions and --fairness")
    if suspects:
        from fedmerit.study.suspects import suspects_dict, suspects_screen

        _list(folder, suspects_dict, suspects_screen, as_json)
    elif contributions:
        from fedmerit.study.contributions import contributions_dict, contributions_screen

        _list(folder, contributions_dict, contributions_screen, as_json)
    elif fairness:
        _fairness(folder, level, as_json)
    else:
        _weights(folder, number, client, as_json)


def _weights(folder: Path, number: int | None, client: str | None, as_json: bool) -> None:
    from fedmerit.report.explain import as_dict, explain_client, explain_round

    with open_run(folder) as ledger:
        who = None if client is None else ledger.find_client(client)
        if as_json:
            typer.echo(dump_json(as_dict(ledger, number, who)))
            return
        # All parts before the first is printed: a damaged ledger then gives only its message.
        parts = list(explain_round(ledger, number) if who is None else explain_client(ledger, number, who))
    for part in parts:
        out_console.print(part)


def _list(
    folder: Path,
    read: Callable[[Ledger], dict[str, Any]],
    screen: Callable[[dict[str, Any]], Iterable[RenderableType]],
    as_json: bool,
) -> None:
    with open_run(folder) as ledger:
        values = read(ledger)
    show(values, lambda: screen(values), as_json)


def _fairness(folder: Path, level: float, as_json: bool) -> None:
    from fedmerit.study.fairness import fairness_dict, fairness_of, fairness_tables

    with open_run(folder) as ledger:
        result, names = fairness_of(ledger, level), ledger.names()
    show(fairness_dict(result, names), lambda: fairness_tables(result, names, level), as_json)
