"""`fedmerit run` and `fedmerit verify`: run a federation, and check that its files are unchanged."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import (
    Json,
    Overrides,
    Reading,
    RunFolder,
    app,
    err_console,
    notes_printed,
    open_run,
    out_console,
    stoppable,
)
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit run examples/digits.toml --set recipe.criteria=CB,DS --out runs/first")
def run(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="What to run.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.", show_default=False)] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="CLIENT", help="Repeat a run without this client; repeatable.", show_default=False),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.", show_default=False)] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Run a configuration, and record every round in a folder.

    CONFIG.toml has the sections task, train, recipe and run; examples/ has one for each task. A value such as
    module:attribute names your own Python part, and running the configuration runs that module's code. Ctrl-C stops
    after the round. --resume continues a stopped or killed run, and gives the same bits as a run without a stop.
    --without repeats the run of DIR/config.toml as if the client had never taken part, with a statement of what changed
    in leaving.md and leaving.json.
    """
    from fedmerit.config.schema import Config, load_config
    from fedmerit.core.system import cores
    from fedmerit.engine.leaving import leave
    from fedmerit.engine.logs import RoundLog, log_format
    from fedmerit.engine.progress import progress
    from fedmerit.engine.run import resume as go_on
    from fedmerit.engine.run import run_config
    from fedmerit.fleet.pool import keep_memory
    from fedmerit.report.screen import json_line
    from fedmerit.report.summary import loss_text, summary, value_text
    from fedmerit.store.run_folder import CONFIG
    from fedmerit.tasks.registry import Task, make_task

    folder = out or resume
    if folder is None or (out and resume) or (out and not config):
        raise ConfigError("give CONFIG.toml and --out DIR for a new run, or --resume DIR to continue one")
    done = 0
    if resume:
        with open_run(resume) as ledger:
            done = ledger.last_round()
    changes = [*(overrides or []), *([f"run.workers={workers}"] if workers is not None else [])]
    settings, note = load_config(config or folder / CONFIG, changes), ""
    if without:
        if resume or overrides or config is None:
            raise ConfigError("--without repeats the run of CONFIG.toml in a new folder; give --out, and no --set")
        settings, note = leave(settings, config.parent, without)
    keep_memory()  # one worker trains in this process
    console = err_console if as_json or log_format() == "json" else out_console

    def load(config: Config) -> Task:
        """Load the task, and print what was done with its rows and what is suspicious about them before round 1."""
        task = make_task(config)
        for line in task.federation.report:
            console.print(f"data: {line}", markup=False, soft_wrap=True)
        for line in task.federation.data.brief() if task.federation.data else ():
            console.print(f"data: {line}", style="yellow", markup=False, soft_wrap=True)
        return task

    begin = partial(run_config, settings, folder, leaving=note) if out else partial(go_on, folder, settings)
    start = partial(begin, load=load)
    if settings.run.workers and settings.run.workers > cores():
        err_console.print(f"hint: {settings.run.workers} workers share {cores()} cores; one per core is fastest")
    with stoppable(f"fedmerit run --resume {folder}"), notes_printed():
        if as_json:
            start(lambda record: typer.echo(json_line(record)))
            return
        if log_format() == "json":
            start(RoundLog(run=str(folder)))
            return
        with progress(out_console, settings.run.rounds, done=done) as on_record:
            ended = start(on_record)
    for event in ended.ledger.events(0):
        if event.kind == "target":
            out_console.print(f"data: {event.text}", markup=False)
    clients = len(ended.ledger.names())
    if clients > 1 and settings.run.schedule is None and round(settings.run.fraction * clients) <= 1:
        err_console.print(
            f"hint: run.fraction = {settings.run.fraction:g} draws one of {clients} clients for a round, and that one "
            "has all the weight; raise it"
        )
    result = summary(ended.ledger)
    if losses := loss_text(result):
        out_console.print(losses, markup=False)
    out_console.print(f"{value_text(result)} after {ended.ledger.last_round()} rounds; kept in {folder}", markup=False)
    for text in result["constant"]:
        out_console.print(f"WARNING: {text}", style="bold red", markup=False, soft_wrap=True)
    if note:
        out_console.print(f"without {', '.join(settings.task.without)}: see {folder / 'leaving.md'}", markup=False)
    out_console.print(f"next: fedmerit explain {folder}", style="dim", markup=False, soft_wrap=True)


@app.command(cls=Reading, epilog="Example:  fedmerit verify runs/first")
def verify(folder: RunFolder, as_json: Json = False) -> None:
    """Check that the files of a run are what the run wrote.

    Exits with 1 if a file was changed. The last hash covers ledger, configuration, encoder and models: keep it in
    another place, to detect later that somebody replaced the run.
    """
    from fedmerit.store.verify import verify_run

    result = verify_run(folder)
    if as_json:
        typer.echo(dump_json({"intact": not result.faults, **asdict(result)}))
    lines = [f"{name}: {fault}" for name, fault in sorted(result.faults.items())]
    lines = lines or [
        f"{folder} is unchanged: {result.rounds} rounds, last hash {result.head}",
        f"the hash covers: {', '.join(result.covered)}",
        *(f"not covered: {line}" for line in result.not_covered),
    ]
    for line in () if as_json else lines:
        out_console.print(line, markup=False, soft_wrap=True)
    if result.faults:
        raise typer.Exit(1)
