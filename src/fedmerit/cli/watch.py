"""The command that shows runs while they go on."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import app, out_console
from fedmerit.errors import ConfigError


@app.command(epilog="Example:  fedmerit watch runs/first")
def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run, a study, or a folder that holds such.", show_default=False)
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8321,
    host: Annotated[str, typer.Option(help="Where to listen; past loopback the link has a token.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this machine.")] = False,
) -> None:
    """Show a run or a study in the browser while it goes on: the page of `fedmerit report`, growing round by round.

    DIR is a folder made by `fedmerit run`, `compare` or `flower`, or one with several, which are then listed. Nothing
    is written. Ctrl-C ends it; the runs do not notice.
    """
    from fedmerit.report.html import read_plotly
    from fedmerit.report.watch import Watched, WatchServer

    read_plotly()  # says what is missing before anybody opens a link
    watched = Watched(folder)
    try:
        server = WatchServer(host, port, watched)
    except OSError as error:
        raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror or error}; give another --port") from None
    out_console.print(f"watching {folder}: {server.address}", markup=False, soft_wrap=True)
    if browser:
        webbrowser.open(server.address)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.closing = True
        server.server_close()
