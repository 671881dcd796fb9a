"""The command on contributions."""

from __future__ import annotations

import typer

from fedmerit.cli.app import Json, RunFolder, app, out_console
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit contribution runs/first --json")
def contribution(folder: RunFolder, as_json: Json = False) -> None:
    """Say what every client's updates were worth to the model, over a run.

    DIR is a folder made by `fedmerit run` with recipe.stages = ["contribution:shapley"], or with a criterion
    contribution:METHOD.
    """
    from fedmerit.report.contributions import contributions_dict, contributions_screen
    from fedmerit.store.run_folder import open_ledger

    with open_ledger(folder) as ledger:
        found = contributions_dict(ledger)
    if as_json:
        typer.echo(dump_json(found))
        return
    for part in contributions_screen(found):
        out_console.print(part)
