"""The command line's frame: the app, its consoles, and how it ends.

Commands import what they call when they are called: `--help` then takes a fifth of the time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedmerit.errors import RunStopped, UserError

app = typer.Typer(
    name="fedmerit",
    help="Federated learning in which a client's weight is earned, and explained.",
    epilog="Start with:  fedmerit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)

out_console = Console(highlight=False)
err_console = Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Write over the file if it exists.")]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedmerit run`.", show_default=False)]


def main() -> None:
    """Run the command line; a user's mistake ends with 2 and one message, a failure with 1."""
    try:
        app()
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
) -> None:
    pass


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
