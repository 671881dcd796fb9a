"""The command line's frame: the app, its consoles, and how it ends.

Commands import what they call when they are called: `--help` then takes a fifth of the time.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

from fedmerit.core.showing import visible
from fedmerit.errors import NoteWarning, RunStopped, UserError
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.store.ledger import Ledger

PANELS = {
    "Run": ("init", "run", "weigh", "flower", "enroll", "doctor", "renew", "demo"),
    "Look": (
        *("explain", "show", "report", "suspects", "contribution", "fairness", "what-if", "facts", "privacy"),
        *("predict", "export", "metrics", "verify"),
    ),
    "Compare": ("compare", "attack"),
    "Parts": ("tasks", "recipes", "criteria", "scores", "objectives"),
}
"""The commands as `--help` groups them, in its order."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class Grouped(TyperGroup):
    """Commands in the order of `PANELS`, each in its panel."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """By their place in the table."""
        places = {name: place for place, name in enumerate(_PANEL_OF)}
        return sorted(super().list_commands(ctx), key=lambda name: places.get(name, len(places)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, told its panel."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand | TyperGroup):
            command.rich_help_panel = _PANEL_OF.get(cmd_name)
        return command


app = typer.Typer(
    name="fedmerit",
    cls=Grouped,
    help="Federated learning in which a client's weight is earned, and explained.",
    epilog="Start with:  fedmerit demo, then  fedmerit init",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class SafeConsole(Console):
    """A console on which text of others cannot steer the terminal: control characters are shown as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What rich makes of it, its own control codes aside."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out_console = SafeConsole(highlight=False)
err_console = SafeConsole(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Write over the file if it exists.")]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME:WHERE",
        help="Log every round there, too, e.g. tensorboard:runs/tb; csv, jsonl, tensorboard, mlflow, wandb.",
        show_default=False,
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedmerit run`.", show_default=False)]


def main() -> None:
    """Run the command line."""
    run_command(app)


def run_command(command: Callable[[], object]) -> None:
    """Run a command and exit with 2 and one message after a user's mistake, with 1 after a failure."""
    try:
        command()
    except UserError as error:
        err_console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output went away, for example `fedmerit tasks | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("FEDMERIT_DEBUG"):
            raise
        text = f"failed: {type(error).__name__}: {error} (FEDMERIT_DEBUG=1 shows where)"
        err_console.print(text, style="red", markup=False, soft_wrap=True)
        sys.exit(1)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"fedmerit {version('fedmerit')}")
        raise typer.Exit


@app.callback()
def _root(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option(
            help="text, or json: a line per event on standard error. Default: FEDMERIT_LOG.", metavar="FORMAT"
        ),
    ] = None,
) -> None:
    if log_format or os.environ.get("FEDMERIT_LOG"):
        from fedmerit.engine.logs import VARIABLE, start_logs

        start_logs(log_format)
        os.environ[VARIABLE] = log_format or os.environ[VARIABLE]  # for the processes that this one starts


def open_run(folder: Path) -> Ledger:
    """The ledger of a run's folder, to read from."""
    from fedmerit.store.run_folder import open_ledger

    return open_ledger(folder)


def show(value: Any, parts: Callable[[], Iterable[RenderableType]], as_json: bool) -> None:
    """Print a result: as JSON for machines, or its parts for people."""
    if as_json:
        typer.echo(dump_json(value))
        return
    for part in parts():
        out_console.print(part)


@contextmanager
def stoppable(again: str) -> Iterator[None]:
    """Tell the command that resumes what was stopped."""
    try:
        yield
    except (RunStopped, KeyboardInterrupt) as stop:
        err_console.print(
            f"{str(stop) or 'stopped at once'}; resume with: {again}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


@contextmanager
def notes_told() -> Iterator[None]:
    """What is to be known of a run that goes on, such as a log that failed, is one line, not Python's two."""

    def show(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        if issubclass(category, NoteWarning):
            err_console.print(f"note: {message}", style="yellow", markup=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoteWarning)
        warnings.showwarning = show
        yield
