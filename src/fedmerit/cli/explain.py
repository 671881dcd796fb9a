"""`fedmerit explain`: why clients got their weights; who stands out, what updates were worth, who gained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmerit.cli.app import Client, Json, RunFolder, app, open_run, out_console, show
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit explain runs/first --round 10 --client 17")
def explain(
    folder: RunFolder,
    client: Client = None,
    number: Annotated[int | None, typer.Option("--round", help="A round; default: the last.")] = None,
    suspects: Annotated[bool, typer.Option("--suspects", help="List clients that keep standing out.")] = False,
    contributions: Annotated[bool, typer.Option("--contributions", help="What each client's updates added.")] = False,
    fairness: Annotated[bool, typer.Option("--fairness", help="Compare contributions with gains.")] = False,
    level: Annotated[float, typer.Option(help="With --fairness: converged from here on.")] = 0.9,
    standalone: Annotated[
        Path | None, typer.Option(help="With --fairness: a run of recipe standalone.", show_default=False)
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(help="With --fairness: a run with contributions.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Say why each client got its weight.

    With --client in words: what mattered most, the arithmetic, and what would change the weight. --suspects lists the
    clients whose updates keep standing out, and the evidence. --contributions needs a run with recipe.stages =
    ["contribution:shapley"], or another method. --fairness compares what clients contribute with their accuracy, and
    with their gain over training alone: the row `standalone` of the same study, or --standalone DIR.
    """
    if suspects + contributions + fairness > 1:
        raise ConfigError("give one of --suspects, --contributions and --fairness")
    if suspects:
        _suspects(folder, as_json)
    elif contributions:
        _contributions(folder, as_json)
    elif fairness:
        _fairness(folder, level, standalone, measured, as_json)
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


def _suspects(folder: Path, as_json: bool) -> None:
    from fedmerit.study.suspects import suspects_dict, suspects_screen

    with open_run(folder) as ledger:
        values = suspects_dict(ledger)
    show(values, lambda: suspects_screen(values), as_json)


def _contributions(folder: Path, as_json: bool) -> None:
    from fedmerit.study.contributions import contributions_dict, contributions_screen

    with open_run(folder) as ledger:
        values = contributions_dict(ledger)
    show(values, lambda: contributions_screen(values), as_json)


def _fairness(folder: Path, level: float, standalone: Path | None, measured: Path | None, as_json: bool) -> None:
    from fedmerit.study.fairness import (
        fairness_dict,
        fairness_of,
        fairness_tables,
        gains_dict,
        gains_tables,
        read_gains,
    )

    with open_run(folder) as ledger:
        result, names = fairness_of(ledger, level), ledger.names()
        gains = read_gains(folder, ledger, standalone, measured)
    values: dict[str, Any] = fairness_dict(result, names) | ({"gains": gains_dict(gains)} if gains else {})
    further = gains_tables(gains, names) if gains else ()
    show(values, lambda: [*fairness_tables(result, names, level), *further], as_json)
