"""Commands on the clients of a run: what they contributed, and who stands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import RenderableType

from fedmerit.cli.app import Json, RunFolder, app, out_console
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.store.ledger import Ledger


@app.command(epilog="Example:  fedmerit contribution runs/first --json")
def contribution(folder: RunFolder, as_json: Json = False) -> None:
    """Say what every client's updates were worth to the model, over a run.

    DIR is a folder made by `fedmerit run` with recipe.stages = ["contribution:shapley"], or with a criterion
    contribution:METHOD.
    """
    from fedmerit.study.contributions import contributions_dict, contributions_screen

    _show(folder, contributions_dict, contributions_screen, as_json)


@app.command(epilog="Example:  fedmerit suspects runs/first --json")
def suspects(folder: RunFolder, as_json: Json = False) -> None:
    """Say which clients stand out again and again, since when and by what was seen.

    DIR is a folder made by `fedmerit run`. Words say what was seen; they accuse nobody (docs/suspects.md).
    """
    from fedmerit.study.suspects import suspects_dict, suspects_screen

    _show(folder, suspects_dict, suspects_screen, as_json)


def _show(
    folder: Path,
    read: Callable[[Ledger], dict[str, Any]],
    screen: Callable[[Mapping[str, Any]], Iterable[RenderableType]],
    as_json: bool,
) -> None:
    """Print what is read from a run's ledger."""
    from fedmerit.store.run_folder import open_ledger

    with open_ledger(folder) as ledger:
        found = read(ledger)
    for part in [dump_json(found)] if as_json else screen(found):
        typer.echo(part) if as_json else out_console.print(part)
