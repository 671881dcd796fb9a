"""The commands that run a configuration on Flower, start nodes, and manage keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from fedmerit.cli.app import Logs, app, out_console
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
    help="Run a configuration on Flower: fedmerit flower CONFIG.toml --loopback.",
    epilog="Example:  fedmerit flower examples/digits.toml --loopback --set task.clients=4 --out runs/flower",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(flower, name="flower")


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
    key: Annotated[
        Path | None, typer.Option("--operator-key", help="With HOST:PORT: the operator's key, where it is asked for.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="With --loopback and [task.nodes]: a node and its rows; repeatable."),
    ] = None,
    enrolled: Annotated[
        Path | None, typer.Option(help="With --superlink: the file of `fedmerit enroll`, on the ServerApp's machine.")
    ] = None,
    log: Logs = None,
    overrides: Overrides = None,
) -> None:
    """Run a configuration on Flower: the same recipe on SuperNodes, one for each client of the task.

    Give one of --superlink, --loopback and --simulation; `run` itself may be left out. A name module:attribute in
    CONFIG.toml is a part of your own, and runs that module's code. See docs/flower.md.
    """
    from fedmerit.config.schema import load_config
    from fedmerit.engine.sinks import located_logs

    with _needing_flower():
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    if sum((superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --superlink NAME, --loopback and --simulation")
    if ((secure or node) and not here) or ((authority or insecure or enrolled or key) and not superlink):
        raise ConfigError(
            "--secure goes with --loopback, as does --node; --root-certificates, --insecure and --operator-key go "
            "with --superlink HOST:PORT, --enrolled with --superlink"
        )
    logs = located_logs(log or [])  # Flower's processes run in folders of their own
    settings, say = load_config(config, overrides or []), partial(out_console.print, markup=False, soft_wrap=True)
    if superlink:
        on_superlink(settings, out, superlink, authority, plain=insecure, say=say, enrolled=enrolled, key=key, log=logs)
    elif here:
        on_loopback(settings, out, secure=secure, say=say, nodes=node or (), log=logs)
    else:
        on_simulation(settings, out, logs)


@flower.command(epilog="Example:  fedmerit flower key operator.key --login server.example:9092")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file; made if missing, for its owner only.")],
    login: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Store the key for `flwr` and named connections.")
    ] = None,
) -> None:
    """Make the operator's key, with which runs are started and nodes registered; or store it for a SuperLink.

    `python -m fedmerit.flower.superlink` requires this key. --login names the SuperLink's address as Flower's
    config.toml has it. See docs/flower.md.
    """
    with _needing_flower():
        from flwr.supercore.utils import get_flwr_home

        from fedmerit.flower.keys import make_operator_key
        from fedmerit.flower.superlink import log_in, read_operator_key
    if login is None or not file.exists():
        make_operator_key(file)
    if login is not None:
        log_in(get_flwr_home(), login, read_operator_key(file))
    stored = "" if login is None else f", stored for {login} in {get_flwr_home()}"
    out_console.print(f"key: {file}{stored}", markup=False, soft_wrap=True)


@flower.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example:  fedmerit flower node --superlink HOST:PORT --root-certificates ca.crt --node-config ...",
)
def node(context: typer.Context) -> None:
    """Start a fast SuperNode: the options of `flower-supernode`, with a fork server for its ClientApps."""
    with _needing_flower():
        from fedmerit.flower.supernode import become_supernode
    become_supernode(context.args)


@app.command(epilog="Example:  fedmerit enroll enrolled.toml --client 3 --key hospital3.pub --samples 1200")
def enroll(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The enrolment; made anew if missing.")],
    client: Annotated[int | None, typer.Option(min=0, help="Which client; without it, list all.")] = None,
    key: Annotated[Path | None, typer.Option(help="The public key of its node, as ssh-keygen writes it.")] = None,
    name: Annotated[str, typer.Option(help="What people call the client.")] = "",
    samples: Annotated[int | None, typer.Option(min=1, help="The most training rows that it may claim.")] = None,
    labels: Annotated[int | None, typer.Option(min=1, help="The most labels that it may claim.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the client's key instead.")] = False,
) -> None:
    """Say whose key is which client on Flower, and what that client is known to have.

    `fedmerit flower --superlink ... --enrolled FILE.toml` then takes a node for the client that its key is enrolled
    for, and for no other. The SuperLink must ask for keys (--enable-supernode-auth).
    """
    with _needing_flower():
        from fedmerit.flower import admission
    enrolment = admission.read_enrolment(file) if file.exists() else admission.Enrolment()
    if (client is None) != (key is None and not revoke) or (key is not None and revoke):
        raise ConfigError("give --client N with --key FILE to enroll, or --client N --revoke")
    if client is not None:
        if key is None:
            enrolment = enrolment.without(client)
        else:
            fingerprint = admission.read_fingerprint(key)
            limits = {"samples": samples, "labels": labels}
            new = admission.EnrolledClient(client=client, key=fingerprint, name=name, **limits)
            enrolment = enrolment.with_client(new)
        admission.write_enrolment(file, enrolment)
    for one in enrolment.client:
        state = "revoked" if one.revoked else "enrolled"
        facts = "".join(f", {fact} <= {most:g}" for fact, most in one.limits.items())
        line = f"client {one.client} {one.name}: {state}, key {one.key[:16]}{facts}"
        out_console.print(line, markup=False, soft_wrap=True)


@contextmanager
def _needing_flower() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs Flower ({error.name} is missing): pip install 'fedmerit[flower]'") from None
