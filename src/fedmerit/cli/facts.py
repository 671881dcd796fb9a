"""Commands for experts: what clients' facts are before any training, and what another priority would have given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedmerit.cli.app import Json, RunFolder, app, out_console
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.core.types import Normalise

SHOWN = 20
"""Clients on the screen."""


@app.command(epilog="Example:  fedmerit facts examples/digits.toml")
def facts(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What would be run.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. task.clients=20; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure all clients' facts without training, and say which criteria tell them apart.

    A criterion separates clients if, deciding alone, it moves at least 1 % of the weight against equal weights.
    """
    from fedmerit.config.privacy import recipe_of
    from fedmerit.config.schema import load_config
    from fedmerit.engine.measured import asked_of_clients, measured_facts, readable_criteria, separations
    from fedmerit.report.screen import wide_tables
    from fedmerit.tasks.registry import make_task

    settings = load_config(config, overrides or [])
    federation, recipe = make_task(settings).federation, recipe_of(settings)
    found = measured_facts(federation, asked_of_clients(recipe.criteria))
    lines = separations(found, readable_criteria(found, recipe.criteria))
    if as_json:
        clients = {
            name: {fact: float(values[client]) for fact, values in found.items()}
            for client, name in enumerate(federation.names)
        }
        criteria = {line.criterion: {"moved": line.moved, "separates": line.separates} for line in lines}
        typer.echo(dump_json({"clients": clients, "criteria": criteria}))
        return
    shown = [
        (name, *(f"{values[client]:.4g}" for values in found.values()))
        for client, name in enumerate(federation.names[:SHOWN])
    ]
    out_console.print(*wide_tables("Facts before training", ("client", *found), shown, out_console.width), sep="\n")
    if len(federation.names) > SHOWN:
        out_console.print(f"... and {len(federation.names) - SHOWN} more; --json has all", style="dim")
    rows = [
        (
            line.criterion,
            *(f"{value:.4g}" for value in (line.least, line.median, line.largest)),
            f"{line.moved:.1%}",
            "yes" if line.separates else "no",
        )
        for line in lines
    ]
    header = ("criterion", "least", "median", "largest", "moved", "separates")
    title = "Criteria that these facts suffice for"
    out_console.print(*wide_tables(title, header, rows, out_console.width), sep="\n")


@app.command("what-if", epilog="Example:  fedmerit what-if runs/first --priority CB,DS --normalise max")
def what_if(
    folder: RunFolder,
    priority: Annotated[str, typer.Option(help="The criteria, most important first: CB,DS.", show_default=False)],
    normalise: Annotated[str | None, typer.Option(help="sum, max, minmax, none; default: as the run did.")] = None,
    number: Annotated[int | None, typer.Option("--round", help="One round alone; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Weigh a finished run's rounds again by another priority; nothing is trained.

    DIR is a folder made by `fedmerit run`. Criteria are those that the run kept, or whose facts it kept. Another
    weighting would have led to other models: read it as a look at the weights, not at accuracy.
    """
    import numpy as np

    from fedmerit.core.scores import PLAIN
    from fedmerit.errors import UserError
    from fedmerit.report.screen import list_table
    from fedmerit.store.run_folder import open_ledger
    from fedmerit.store.what_if import rescored, reweigh

    names = [name.strip() for name in priority.replace(">", ",").split(",") if name.strip()]
    with open_ledger(folder) as ledger:
        rounds = reweigh(ledger, names, cast("Normalise | None", normalise))
        clients, score = ledger.names(), rescored(ledger)
    rounds = [one for one in rounds if number is None or one.round == number]
    if not rounds:
        raise UserError(f"nobody was weighed in round {number}")
    before, after = np.zeros(len(clients)), np.zeros(len(clients))
    for one in rounds:
        before[list(one.clients)] += one.before / len(rounds)
        after[list(one.clients)] += one.after / len(rounds)
    moved = float(np.mean([one.moved for one in rounds]))
    if as_json:
        lines = [{"client": name, "before": before[i], "after": after[i]} for i, name in enumerate(clients)]
        typer.echo(dump_json({"priority": names, "moved": moved, "rounds": len(rounds), "clients": lines}))
        return
    order = np.argsort(-np.abs(after - before), kind="stable")[:SHOWN]
    rows = [(clients[i], f"{before[i]:.2%}", f"{after[i]:.2%}", f"{after[i] - before[i]:+.2%}") for i in order]
    by = next(name for name, (kind, _) in PLAIN.items() if kind is type(score))
    title = f"{' > '.join(names)}, {by}: {moved:.1%} of the weight changes hands, mean of {len(rounds)} rounds"
    out_console.print(list_table(title, ("client", "share had", "would have", "change"), rows))
