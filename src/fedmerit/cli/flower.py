"""The command that runs a configuration on Flower."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import app, out_console
from fedmerit.config import load_config
from fedmerit.errors import ConfigError


@app.command(epilog="Example:  fedmerit flower examples/digits.toml --loopback --set task.clients=4 --out runs/flower")
def flower(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    folder: Annotated[
        Path | None, typer.Option("--app", help="Make a Flower app in this new folder, for `flwr run`.")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(help="Run on this SuperLink: a connection's name, or HOST:PORT.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--loopback", help="Run on a SuperLink and SuperNodes started on this machine.")
    ] = False,
    simulation: Annotated[bool, typer.Option("--simulation", help="Run in Flower's simulation (Ray).")] = False,
    out: Annotated[Path, typer.Option(help="Where the ServerApp keeps the run.")] = Path("runs/flower"),
    secure: Annotated[bool, typer.Option(help="With --loopback: TLS, and a key for each node.")] = False,
    authority: Annotated[
        Path | None, typer.Option("--root-certificates", help="With HOST:PORT: the authority's certificate.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With HOST:PORT: plain text.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. train.lr=0.05; repeatable."),
    ] = None,
) -> None:
    """Run a configuration on Flower: the same recipe on SuperNodes, one for each client of the task.

    Give one of --app, --superlink, --loopback and --simulation. See docs/flower.md.
    """
    try:
        from fedmerit.flower.new import write_app
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs Flower ({error.name} is missing): pip install 'fedmerit[flower]'") from None
    if sum((folder is not None, superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --app DIR, --superlink NAME, --loopback and --simulation")
    if (secure and not here) or ((authority or insecure) and not superlink):
        raise ConfigError(
            "--secure goes with --loopback; --root-certificates and --insecure go with --superlink HOST:PORT"
        )
    settings, say = load_config(config, overrides or []), partial(out_console.print, markup=False, soft_wrap=True)
    if superlink:
        on_superlink(settings, out, superlink, authority, plain=insecure, say=say)
    elif here:
        on_loopback(settings, out, secure=secure, say=say)
    elif simulation:
        on_simulation(settings, out)
    elif folder:
        write_app(folder, settings, out)
        say(f"Flower app: {folder}; next: flwr run {folder} SUPERLINK --stream")
