"""`fedmerit flower`: provision a federation, start its nodes, start, follow and stop runs on Flower."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from fedmerit.cli.app import Overrides, app, out_console
from fedmerit.errors import ConfigError


class _RunUnlessNamed(TyperGroup):
    """A first word that is not a command is a configuration to run."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if named else ["run", *args])


flower = typer.Typer(
    cls=_RunUnlessNamed,
    help="Run on Flower; provision sites, follow and stop runs.",
    epilog="Example:  fedmerit flower run examples/digits.toml --loopback --set task.clients=4",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(flower, name="flower")


Kit = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The server's kit: address and keys.", show_default=False)
]
Link = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="In place of a kit: a connection of Flower's config.toml.", show_default=False),
]
RunName = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="The name of its folder, or Flower's number.", show_default=False)
]


@flower.command("run", epilog="Example:  fedmerit flower run examples/digits.toml --loopback --set task.clients=4")
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="A configuration.", show_default=False)],
    kit: Kit = None,
    superlink: Link = None,
    here: Annotated[bool, typer.Option("--loopback", help="Start all processes on this machine.")] = False,
    simulation: Annotated[bool, typer.Option("--simulation", help="Run in Flower's simulation (Ray).")] = False,
    out: Annotated[Path, typer.Option(help="A new folder for the run, on the server.")] = Path("runs/flower"),
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="With [task.nodes] and --loopback: a node and its rows."),
    ] = None,
    client_cpus: Annotated[int, typer.Option(min=1, metavar="N", help="With --simulation: CPUs per client.")] = 1,
    overrides: Overrides = None,
) -> None:
    """Run a configuration on Flower, with a SuperNode for each client.

    Give one of --kit, --superlink, --loopback and --simulation. The word `run` is optional. Ctrl-C ends this command,
    not a run on a SuperLink. A value such as module:attribute in CONFIG.toml names your own Python part, and running it
    runs that module's code. See docs/flower.md.
    """
    from fedmerit.config.schema import load_config

    with _needing_flower():
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    if sum((kit is not None, superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --kit DIR, --superlink NAME, --loopback and --simulation")
    if (node and not here) or (client_cpus > 1 and not simulation):
        raise ConfigError("--node goes with --loopback, --client-cpus with --simulation; remove the option")
    settings = load_config(config, overrides or [])
    if here:
        on_loopback(settings, out, _say, node or ())
    elif simulation:
        on_simulation(settings, out, client_cpus)
    else:
        on_superlink(settings, out, _say, kit=kit, superlink=superlink)


@flower.command(epilog="Example:  fedmerit flower provision hospitals.toml --host server.example --out kits")
def provision(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="A configuration.", show_default=False)],
    host: Annotated[str, typer.Option(metavar="NAME", help="The server's name or address.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the kits.", show_default=False)],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The SuperLink's port.")] = 9092,
) -> None:
    """Make a kit for the server and one for each client: certificates, keys, units, start scripts, a policy.

    The clients are the names in [task.nodes]; without it, the clients of a simulated task. Call it again to add
    clients, and to renew the server's certificate before its 90 days end.
    """
    from fedmerit.config.schema import load_config

    with _needing_flower():
        from fedmerit.flower import kit, start
    sites = kit.provision(start.clients_of(load_config(config, [])), host, port, out)
    _say(f"authority: {out / 'authority'} (ca.key signs certificates: store it offline)")
    _say(f"server:    {out / 'server'}")
    for site in sites:
        _say(f"site:      {site}")


@flower.command(epilog="Example:  fedmerit flower follow hospitals --kit kits/server")
def follow(name: RunName = None, kit: Kit = None, superlink: Link = None) -> None:
    """Show the log of a run until it ends; by default of the newest run."""
    with _needing_flower():
        from fedmerit.flower import start
    start.follow(name, _say, kit=kit, superlink=superlink)


@flower.command(epilog="Example:  fedmerit flower stop hospitals --kit kits/server")
def stop(name: RunName = None, kit: Kit = None, superlink: Link = None) -> None:
    """Stop a run; by default the newest one. `fedmerit flower run` with the same --out resumes it."""
    with _needing_flower():
        from fedmerit.flower import start
    start.stop(name, _say, kit=kit, superlink=superlink)


@flower.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example:  fedmerit flower node --kit hospital-3",
)
def node(context: typer.Context) -> None:
    """Start a site's SuperNode, which keeps the site's policy and answers fast.

    `--kit DIR` is a site's kit of `fedmerit flower provision`; or give the options of `flower-supernode`, and `--policy
    FILE`. Ctrl-C ends it.
    """
    with _needing_flower():
        from fedmerit.flower.supernode import become_supernode
    become_supernode(context.args)


def _say(line: str) -> None:
    out_console.print(line, markup=False, soft_wrap=True)


@contextmanager
def _needing_flower() -> Iterator[None]:
    try:
        from fedmerit.flower.versions import require_tested

        require_tested()
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this needs Flower ({error.name} is missing): install the extra `flower` (docs/install.md)"
        ) from None
