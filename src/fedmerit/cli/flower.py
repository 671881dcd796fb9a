"""The commands that run a configuration on Flower, or make an app of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from fedmerit.cli.app import app, out_console
from fedmerit.errors import ConfigError

RUN = "run"
Out = Annotated[Path, typer.Option(help="Where the ServerApp keeps the run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. train.lr=0.05; repeatable."),
]
RUNS = Path("runs/flower")


class _RunUnlessNamed(TyperGroup):
    """A first word that is not a command is a configuration to run."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if named else [RUN, *args])


flower = typer.Typer(
    cls=_RunUnlessNamed,
    help="Run a configuration on Flower: fedmerit flower CONFIG.toml --loopback. Or make a Flower app of it.",
    epilog="Example:  fedmerit flower examples/digits.toml --loopback --set task.clients=4 --out runs/flower",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(flower, name="flower")


@flower.command(
    epilog="Example:  fedmerit flower new my-app --config examples/digits.toml && flwr run my-app SUPERLINK"
)
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.", show_default=False)],
    config: Annotated[
        Path | None, typer.Option(metavar="CONFIG.toml", help="What it runs; without it, the embedded digits.")
    ] = None,
    out: Out = RUNS,
    overrides: Overrides = None,
) -> None:
    """Make a Flower app in the new folder DIR, for `flwr run`."""
    from fedmerit.config.schema import load_config

    with _needing_flower():
        from fedmerit.flower.new import write_app
    write_app(folder, load_config(config, overrides or []), out)
    out_console.print(f"Flower app: {folder}; next: flwr run {folder} SUPERLINK --stream", markup=False, soft_wrap=True)


@flower.command(RUN, epilog="Example:  fedmerit flower examples/digits.toml --loopback --set task.clients=4")
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    superlink: Annotated[
        str | None, typer.Option(help="Run on this SuperLink: a connection's name, or HOST:PORT.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--loopback", help="Run on a SuperLink and SuperNodes started on this machine.")
    ] = False,
    simulation: Annotated[bool, typer.Option("--simulation", help="Run in Flower's simulation (Ray).")] = False,
    out: Out = RUNS,
    secure: Annotated[bool, typer.Option(help="With --loopback: TLS, and a key for each node.")] = False,
    authority: Annotated[
        Path | None, typer.Option("--root-certificates", help="With HOST:PORT: the authority's certificate.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With HOST:PORT: plain text.")] = False,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="With --loopback and [task.nodes]: a node and its rows; repeatable."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Run a configuration on Flower: the same recipe on SuperNodes, one for each client of the task.

    Give one of --superlink, --loopback and --simulation; `run` itself may be left out. A name module:attribute in
    CONFIG.toml is a part of your own, and runs that module's code. See docs/flower.md.
    """
    from fedmerit.config.schema import load_config

    with _needing_flower():
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    if sum((superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --superlink NAME, --loopback and --simulation")
    if ((secure or node) and not here) or ((authority or insecure) and not superlink):
        raise ConfigError(
            "--secure goes with --loopback, as does --node; --root-certificates and --insecure go with --superlink "
            "HOST:PORT"
        )
    settings, say = load_config(config, overrides or []), partial(out_console.print, markup=False, soft_wrap=True)
    if superlink:
        on_superlink(settings, out, superlink, authority, plain=insecure, say=say)
    elif here:
        on_loopback(settings, out, secure=secure, say=say, nodes=node or ())
    else:
        on_simulation(settings, out)


@contextmanager
def _needing_flower() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs Flower ({error.name} is missing): pip install 'fedmerit[flower]'") from None
