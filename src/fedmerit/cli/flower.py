"""`fedmerit flower`: run a configuration on Flower, start nodes, manage keys and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
    help="Run on Flower; manage nodes, keys and certificates.",
    epilog="Example:  fedmerit flower run examples/digits.toml --loopback --set task.clients=4",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(flower, name="flower")


@flower.command("run", epilog="Example:  fedmerit flower run examples/digits.toml --loopback --set task.clients=4")
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="A configuration.", show_default=False)],
    superlink: Annotated[
        str | None, typer.Option(help="A connection's name, or HOST:PORT.", show_default=False)
    ] = None,
    here: Annotated[bool, typer.Option("--loopback", help="Start all processes on this machine.")] = False,
    simulation: Annotated[bool, typer.Option("--simulation", help="Run in Flower's simulation (Ray).")] = False,
    out: Annotated[Path, typer.Option(help="A new folder for the run.")] = Path("runs/flower"),
    secure: Annotated[bool, typer.Option("--secure", help="With --loopback: TLS and node keys.")] = False,
    authority: Annotated[
        Path | None, typer.Option("--root-certificates", help="With HOST:PORT: the certificate authority.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With HOST:PORT: no TLS.")] = False,
    key: Annotated[Path | None, typer.Option("--operator-key", help="With HOST:PORT: the operator's key.")] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="With [task.nodes]: a node and its rows."),
    ] = None,
    enrolled: Annotated[Path | None, typer.Option(help="The file of `fedmerit flower enroll`.")] = None,
    client_cpus: Annotated[int, typer.Option(min=1, metavar="N", help="With --simulation: CPUs per client.")] = 1,
    overrides: Overrides = None,
) -> None:
    """Run a configuration on Flower, with a SuperNode for each client.

    Give one of --loopback, --superlink and --simulation. The word `run` is optional. A value such as module:attribute
    in CONFIG.toml names your own Python part, and running it runs that module's code. See docs/flower.md.
    """
    from fedmerit.config.schema import load_config

    with _needing_flower():
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    if sum((superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --superlink NAME, --loopback and --simulation")
    misplaced = ((secure or node) and not here, (authority or insecure or enrolled or key) and not superlink)
    if any(misplaced) or (client_cpus > 1 and not simulation):
        raise ConfigError(
            "--secure goes with --loopback, as does --node; --root-certificates, --insecure and --operator-key go "
            "with --superlink HOST:PORT, --enrolled with --superlink, --client-cpus with --simulation"
        )
    settings, say = load_config(config, overrides or []), partial(out_console.print, markup=False, soft_wrap=True)
    if superlink:
        on_superlink(settings, out, superlink, authority, plain=insecure, say=say, enrolled=enrolled, key=key)
    elif here:
        on_loopback(settings, out, secure=secure, say=say, nodes=node or ())
    else:
        on_simulation(settings, out, client_cpus)


@flower.command(epilog="Example:  fedmerit flower key operator.key --login server.example:9092")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file; created if missing.")],
    login: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Store the key for this SuperLink.")] = None,
) -> None:
    """Make the operator's key, which starts runs and registers nodes.

    `python -m fedmerit.flower.superlink` requires this key. --login stores it for the SuperLink at the address that
    Flower's config.toml names. See docs/flower.md.
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
    """Start a SuperNode whose ClientApps start fast.

    Accepts the options of `flower-supernode`. A fork server imports the packages once for all ClientApps.
    """
    with _needing_flower():
        from fedmerit.flower.supernode import become_supernode
    become_supernode(context.args)


@flower.command(epilog="Example:  fedmerit flower enroll enrolled.toml --client 3 --key hospital3.pub --samples 1200")
def enroll(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The enrolment; created if missing.")],
    client: Annotated[int | None, typer.Option(min=0, help="The client's number.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its node's public key (ssh-keygen).")] = None,
    name: Annotated[str, typer.Option(help="The client's name.")] = "",
    samples: Annotated[int | None, typer.Option(min=1, help="Most training rows it may claim.")] = None,
    labels: Annotated[int | None, typer.Option(min=1, help="Most labels it may claim.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the client's key.")] = False,
) -> None:
    """Bind a node's key to a client, with limits on what it may claim.

    `fedmerit flower run --superlink ... --enrolled FILE.toml` then accepts a node only for the client that its key is
    enrolled for. The SuperLink must require keys (--enable-supernode-auth). Without --client, list the enrolment.
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
    for entry in enrolment.client:
        state = "revoked" if entry.revoked else "enrolled"
        facts = "".join(f", {fact} <= {most:g}" for fact, most in entry.limits.items())
        line = f"client {entry.client} {entry.name}: {state}, key {entry.key[:16]}{facts}"
        out_console.print(line, markup=False, soft_wrap=True)


@flower.command(epilog="Example:  fedmerit flower renew /etc/fedmerit --host 192.0.2.7")
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with ca.crt and ca.key.", show_default=False)],
    host: Annotated[str, typer.Option(help="The address that nodes connect to.")] = "127.0.0.1",
) -> None:
    """Renew the server's key and certificate.

    The authority in DIR signs them, so nodes need no change. Restart the SuperLink to use them.
    """
    with _needing_flower():
        from fedmerit.flower.keys import renew_certificates

    until = renew_certificates(folder, host)
    out_console.print(f"{folder / 'server.pem'} is valid until {until:%Y-%m-%d}; restart the SuperLink", markup=False)


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
