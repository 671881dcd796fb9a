"""The command on suspects: clients of a run that stand out."""

from __future__ import annotations

import typer

from fedmerit.cli.app import Json, RunFolder, app, out_console
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit suspects runs/first --json")
def suspects(folder: RunFolder, as_json: Json = False) -> None:
    """Say which clients stand out again and again, since when and by what was seen.

    DIR is a folder made by `fedmerit run`. Words say what was seen; they accuse nobody (docs/suspects.md).
    """
    from fedmerit.report.suspects import suspects_dict, suspects_screen
    from fedmerit.store.run_folder import open_ledger

    with open_ledger(folder) as ledger:
        found = suspects_dict(ledger)
    if as_json:
        typer.echo(dump_json(found))
        return
    for part in suspects_screen(found):
        out_console.print(part)
