"""The app that all commands register with: consoles, shared options, error handling.

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
from fedmerit.errors import ConfigError, FedmeritError, FolderError, NoteWarning, RunStopped, UserError
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.store.ledger import Ledger

PANELS = {
    "Start": ("demo", "init", "weigh", "run"),
    "Understand": ("explain", "what-if", "report", "verify"),
    "Use": ("predict", "export"),
    "Compare": ("compare",),
    "Set up": ("list", "doctor", "flower"),
}
"""The commands as `--help` groups them, in its order."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}

FORMER = {
    "attack": "fedmerit compare STUDY.toml --out DIR",
    "contribution": "fedmerit explain DIR --contributions",
    "criteria": "fedmerit list criteria",
    "enroll": "fedmerit flower provision CONFIG.toml --host NAME --out DIR",
    "errata": "python -m reproductions errata",
    "facts": "fedmerit doctor CONFIG.toml",
    "fairness": "fedmerit explain DIR --fairness",
    "metrics": "fedmerit export DIR --table rounds --out FILE",
    "objectives": "fedmerit list objectives",
    "privacy": "fedmerit doctor CONFIG.toml",
    "recipes": "fedmerit list recipes",
    "renew": "fedmerit flower provision CONFIG.toml --host NAME --out DIR",
    "reproduce": "python -m reproductions NAME",
    "scores": "fedmerit list scores",
    "show": "fedmerit report DIR --text",
    "suspects": "fedmerit explain DIR --suspects",
    "tasks": "fedmerit list tasks",
    "tune": "fedmerit compare CONFIG.toml --grid KEY=V,V --out DIR",
    "watch": "fedmerit report DIR --live",
}
"""Former commands, and the command that replaces each."""


class Grouped(TyperGroup):
    """Commands in the order of `PANELS`, each in its panel."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Order the commands as `PANELS` does."""
        return list(_PANEL_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command and set its panel; a former name is an error that gives the new command."""
        if cmd_name in FORMER:
            raise ConfigError(f"`fedmerit {cmd_name}` is now `{FORMER[cmd_name]}`")
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand | TyperGroup):
            command.rich_help_panel = _PANEL_OF[cmd_name]
        return command


class Reading(TyperCommand):
    """A command that reads run folders: it imports no code that they name, and reports their damage as such."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; an exception inside it is damage where `verify` finds any."""
        from fedmerit.config.trust import only_trusted_parts

        try:
            with only_trusted_parts():
                return super().invoke(ctx)
        except (FedmeritError, click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception:
            for folder in ctx.params.get("folders") or [ctx.params["folder"]]:
                _check_damage(Path(folder))
            raise


def _check_damage(folder: Path) -> None:
    """Raise a FolderError that names the first fault of a folder, or of a run in a study."""
    from fedmerit.store.run_folder import LEDGER
    from fedmerit.store.verify import verify_run

    for ledger in sorted(folder.rglob(LEDGER)):
        for name, fault in sorted(verify_run(ledger.parent).faults.items()):
            raise FolderError(f"{ledger.parent} is damaged: {name}: {fault}; see `fedmerit verify {ledger.parent}`")


app = typer.Typer(
    name="fedmerit",
    cls=Grouped,
    help="Federated learning in which a client's weight is earned, and explained.",
    epilog="Start with:  fedmerit demo, then  fedmerit init my.toml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class SafeConsole(Console):
    """A console that shows control characters of printed text as escapes, so that no text steers the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with escapes for control characters that are not rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out_console = SafeConsole(highlight=False)
err_console = SafeConsole(stderr=True, highlight=False)


Trust = Annotated[bool, typer.Option("--trust", help="Run the Python parts that the run folder names.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. train.lr=0.05.",
        show_default=False,
    ),
]
Client = Annotated[
    str | None,
    typer.Option(help="A client, by name or number.", show_default=False),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedmerit run`.", show_default=False)]


def main() -> None:
    """Run the command line."""
    run_command(app)


def run_command(command: Callable[[], object]) -> None:
    """Run a command and exit with 2 and one message after a user's mistake, 1 after a failure, 130 if stopped."""
    try:
        command()
    except UserError as error:
        err_console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except RunStopped as stop:
        err_console.print(str(stop), markup=False, soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader closed the pipe, for example `fedmerit list tasks | head -1`
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
            help="text or json; default: FEDMERIT_LOG.",
            metavar="FORMAT",
        ),
    ] = None,
) -> None:
    if log_format or os.environ.get("FEDMERIT_LOG"):
        from fedmerit.engine.logs import VARIABLE, start_logs

        start_logs(log_format)
        os.environ[VARIABLE] = log_format or os.environ[VARIABLE]  # for the processes that this one starts


def open_run(folder: Path) -> Ledger:
    """Open the ledger of a run's folder for reading."""
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
    """Print the command that resumes when the user stops a run."""
    try:
        yield
    except (RunStopped, KeyboardInterrupt) as stop:
        err_console.print(
            f"{str(stop) or 'stopped before the round ended'}; resume with: {again}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


@contextmanager
def notes_printed() -> Iterator[None]:
    """Print warnings as one line each."""

    def show(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        if issubclass(category, NoteWarning):
            err_console.print(f"note: {message}", style="yellow", markup=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoteWarning)
        warnings.showwarning = show
        yield
