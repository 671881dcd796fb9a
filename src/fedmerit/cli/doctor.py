"""`fedmerit doctor`: check the machine, the data, the clients' facts and the privacy cost before a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmerit.cli.app import Json, Overrides, app, err_console, out_console
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json

STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


@app.command(epilog="Example:  fedmerit doctor examples/digits.toml --set task.clients=20")
def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="A configuration to check.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    kit: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Check a kit and its way to the SuperLink.", show_default=False)
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Connect to this SuperLink.", show_default=False)
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option("--root-certificates", help="The SuperLink's certificate authority.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and a configuration before a run.

    Without CONFIG.toml: versions and processor. With --kit also certificates, keys, policy, rows and the SuperLink.
    With CONFIG.toml also the data: of a table what is suspicious about its columns and clients; the facts of all
    clients, which criteria separate them, and what a section [privacy] costs. Nothing is trained. Exits with 1 if a
    check failed.
    """
    from fedmerit.config.schema import load_config
    from fedmerit.report.doctor import examine

    if overrides and config is None:
        raise ConfigError("--set changes a configuration; give CONFIG.toml too")
    settings, findings = load_config(config, overrides or []) if config else None, []
    strict = settings is not None and settings.task.strict
    if settings is not None and strict:  # all suspicions are listed, not only that there are some
        settings = settings.model_copy(update={"task": settings.task.model_copy(update={"strict": False})})
    for found in examine(settings, kit, superlink, authority):
        findings.append(found)
        if not as_json:
            out_console.print(f"{found.status:8}", style=STYLES[found.status], end="")
            out_console.print(f"{found.check}: {found.text}", markup=False, soft_wrap=True)
    statuses = {found.check: found.status for found in findings}
    failed = "failed" in statuses.values()
    values: dict[str, Any] = {"checks": [asdict(found) for found in findings], "suspicions": []}
    if settings is not None and settings.task.nodes is None and statuses["data"] != "failed":
        from fedmerit.cli.facts import report_facts
        from fedmerit.cli.privacy import privacy_tables, report_privacy
        from fedmerit.core.server.private_sum import VOID
        from fedmerit.report.screen import data_tables

        facts, cost = report_facts(settings), report_privacy(settings)
        data = facts.federation.data
        if data is not None:
            values |= asdict(data)
            failed |= strict and bool(data.suspicions)
            for part in () if as_json else data_tables(data):
                out_console.print(part, markup=False, soft_wrap=isinstance(part, str))
        values |= {"facts": facts.as_dict()} | ({} if cost is None else {"privacy": cost[0]})
        for part in () if as_json else (*facts.tables(out_console.width), *(privacy_tables(*cost) if cost else ())):
            out_console.print(part, markup=False)
        if cost and cost[1].reproducible and not as_json:
            err_console.print(VOID, style="yellow", markup=False)
    if as_json:
        typer.echo(dump_json({"well": not failed, **values}))
    if failed:
        raise typer.Exit(1)
