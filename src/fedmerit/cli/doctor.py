"""Commands for who operates a federation: is the machine well, and new certificates before the old ones end."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Json, app, out_console
from fedmerit.store.strict_json import dump_json

STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


@app.command(epilog="Example:  fedmerit doctor examples/digits.toml --certificates /etc/fedmerit")
def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Also try its data.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs are to be kept.")] = Path("runs"),
    certificates: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with ca.crt, server.pem and server.key.")
    ] = None,
    superlink: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Also connect to this SuperLink.")] = None,
    authority: Annotated[
        Path | None, typer.Option("--root-certificates", help="With --superlink: the authority's certificate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine this machine before a run: versions, processor, memory, disk, data, ports, certificates.

    Ends with 1 where a check failed.
    """
    from fedmerit.config.schema import load_config
    from fedmerit.report.doctor import examine

    settings, findings = load_config(config) if config else None, []
    for found in examine(settings, out, certificates, superlink, authority):
        findings.append(found)
        if not as_json:
            out_console.print(f"{found.status:8}", style=STYLES[found.status], end="")
            out_console.print(f"{found.check}: {found.text}", markup=False, soft_wrap=True)
    failed = any(found.status == "failed" for found in findings)
    if as_json:
        typer.echo(dump_json({"well": not failed, "checks": [asdict(found) for found in findings]}))
    if failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit renew /etc/fedmerit --host 192.0.2.7")
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with ca.crt and ca.key.", show_default=False)],
    host: Annotated[str, typer.Option(help="The address that nodes connect to.")] = "127.0.0.1",
) -> None:
    """Make a new key and certificate for the server, by the authority in DIR: nodes go on as they are.

    The SuperLink takes them when it is started again.
    """
    from fedmerit.flower.keys import renew_certificates

    until = renew_certificates(folder, host)
    out_console.print(
        f"{folder / 'server.pem'} is valid until {until:%Y-%m-%d}; start the SuperLink again", markup=False
    )
