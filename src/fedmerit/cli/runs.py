"""Commands on one run: run it, and ask why."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Json, Logs, RunFolder, app, err_console, notes_told, open_run, out_console, stoppable
from fedmerit.cli.app import show as show_result
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit run examples/digits.toml --set recipe.criteria=CB,DS --out runs/first")
def run(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="What to run.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.", show_default=False)] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Resume the run in this folder instead.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; default: one per core.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. train.lr=0.05; repeatable."),
    ] = None,
    log: Logs = None,
    as_json: Json = False,
) -> None:
    """Run a federation and keep everything it did in a folder.

    CONFIG.toml has the sections task, train, recipe and run; examples/ has one for each task. A name module:attribute
    in it is a part of your own: such a configuration runs that module's code. Ctrl-C stops after the round; --resume
    continues it, to the very bits of a run that was never stopped.
    """
    from fedmerit.config.schema import load_config
    from fedmerit.core.system import cores
    from fedmerit.engine.logs import RoundLog, log_format
    from fedmerit.engine.progress import progress
    from fedmerit.engine.run import resume as go_on
    from fedmerit.engine.run import run_config
    from fedmerit.fleet.pool import keep_memory
    from fedmerit.report.screen import json_line
    from fedmerit.store.run_folder import CONFIG

    folder = out or resume
    if folder is None or (out and resume) or (out and not config):
        raise ConfigError("give CONFIG.toml and --out DIR for a new run, or --resume DIR to continue one")
    done = 0
    if resume:
        with open_run(resume) as ledger:
            done = ledger.last_round()
    changes = [*(overrides or []), *([f"run.workers={workers}"] if workers is not None else [])]
    settings = load_config(config or folder / CONFIG, changes)
    logs = log or []
    keep_memory()  # one worker trains in this process
    start = partial(run_config, settings, folder, log=logs) if out else partial(go_on, folder, settings, log=logs)
    if settings.run.workers and settings.run.workers > cores():
        err_console.print(f"hint: {settings.run.workers} workers share {cores()} cores; one per core is fastest")
    with stoppable(" ".join([f"fedmerit run --resume {folder}", *(f"--log '{one}'" for one in logs)])), notes_told():
        if as_json:
            start(lambda record: typer.echo(json_line(record)))
            return
        if log_format() == "json":
            start(RoundLog(run=str(folder)))
            return
        with progress(out_console, settings.run.rounds, done=done) as on_record:
            ended = start(on_record)
    for event in ended.ledger.events(0):
        if event.kind in ("data", "target"):
            out_console.print(f"data: {event.text}", markup=False)
    clients = len(ended.ledger.names())
    if clients > 1 and settings.run.schedule is None and round(settings.run.fraction * clients) <= 1:
        err_console.print(
            f"hint: run.fraction = {settings.run.fraction:g} draws one of {clients} clients for a round, and that one "
            "has all the weight; raise it"
        )
    played = ended.ledger.last_round()
    out_console.print(f"accuracy {ended.accuracy:.4f} after {played} rounds; kept in {folder}", markup=False)
    out_console.print(
        f"next: fedmerit explain {folder} --round {played}",
        style="dim",
        markup=False,
        soft_wrap=True,
    )


@app.command(epilog="Example:  fedmerit explain runs/first --round 10 --client 17")
def explain(
    folder: RunFolder,
    number: Annotated[int | None, typer.Option("--round", help="The round; default: the last.")] = None,
    client: Annotated[str | None, typer.Option(help="One client, by name or number.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Say why each client of a round got its weight, and what would change it.

    DIR is a folder made by `fedmerit run`. With --client, in words: what decided, the arithmetic, what if.
    """
    from fedmerit.report.explain import as_dict, explain_client, explain_round

    with open_run(folder) as ledger:
        who = None if client is None else ledger.find_client(client)
        if as_json:
            typer.echo(dump_json(as_dict(ledger, number, who)))
            return
        for part in explain_round(ledger, number) if who is None else explain_client(ledger, number, who):
            out_console.print(part)


@app.command(epilog="Example:  fedmerit show runs/first --target 0.9 --target 0.95")
def show(
    folder: RunFolder,
    target: Annotated[
        list[float] | None, typer.Option(help="A target accuracy in 0..1; repeatable. Default: 0.7 0.8 0.9 0.95.")
    ] = None,
    or_equal: Annotated[bool, typer.Option(help="Count devices at the target, not only above it.")] = False,
    as_json: Json = False,
) -> None:
    """Sum up a run: accuracy, percentiles over clients, rounds to target; or a study: its tables.

    DIR is a folder made by `fedmerit run`, or by `fedmerit compare`, whose targets are those of its plan.
    """
    from fedmerit.core.measures import TARGETS
    from fedmerit.report.summary import summary, summary_tables
    from fedmerit.study.output import as_json as study_json
    from fedmerit.study.output import ending, is_study
    from fedmerit.study.study import Study

    if is_study(folder):
        if target or or_equal:
            raise ConfigError("a study's targets are in its plan; --target and --or-equal are for one run")
        study = Study.load(folder)
        for part in [study_json(study)] if as_json else ending(study):
            typer.echo(part) if as_json else out_console.print(part)
        return
    with open_run(folder) as ledger:
        result = summary(ledger, target or TARGETS, or_equal=or_equal)
    show_result(result, lambda: summary_tables(result), as_json)


@app.command(epilog="Example:  fedmerit metrics runs/first > /var/lib/node_exporter/fedmerit.prom")
def metrics(folder: RunFolder) -> None:
    """Print a run, also one that goes on, as Prometheus reads it: rounds, seconds per stage, left-out clients, weights.

    DIR is a folder made by `fedmerit run`, `fedmerit flower` or `Merit(out=...)`.
    """
    from fedmerit.report.prometheus import prometheus_text

    with open_run(folder) as ledger:
        typer.echo(prometheus_text(ledger), nl=False)


@app.command(epilog="Example:  fedmerit verify runs/first")
def verify(folder: RunFolder, as_json: Json = False) -> None:
    """Say whether the files of a run are what the run wrote; ends with 1 where one is not.

    DIR is a folder made by `fedmerit run`. The last hash of its ledger stands for all that it did: keep it elsewhere to
    know later that nobody wrote the run anew.
    """
    from fedmerit.store.verify import verify_run

    found = verify_run(folder)
    if as_json:
        typer.echo(dump_json({"intact": not found.faults, **asdict(found)}))
    for name, fault in () if as_json else sorted(found.faults.items()):
        out_console.print(f"{name}: {fault}", markup=False, soft_wrap=True)
    for text in () if as_json else found.skipped:
        out_console.print(text, markup=False, soft_wrap=True)
    if found.faults:
        raise typer.Exit(1)
    if not as_json:
        text = f"{folder} is as it was written: {found.rounds} rounds, last hash {found.head}"
        out_console.print(text, markup=False, soft_wrap=True)


@app.command(epilog="Example:  fedmerit fairness runs/m2f --level 0.9")
def fairness(
    folder: RunFolder,
    level: Annotated[float, typer.Option(help="Local accuracy that counts as converged, in 0..1.")] = 0.9,
    standalone: Annotated[
        Path | None, typer.Option(help="A run of recipe standalone; in a study its own row is taken.")
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(help="A run that measured contributions, for example FedAvg's; default: DIR itself.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare what clients put in with what came of it: speed, accuracy, rewards, gains over training alone.

    DIR is a folder made by `fedmerit run`, or a run of a study.
    """
    from fedmerit.study.fairness import (
        fairness_dict,
        fairness_of,
        fairness_tables,
        gains_dict,
        gains_tables,
        read_gains,
    )

    with open_run(folder) as ledger:
        found, names = fairness_of(ledger, level), ledger.names()
        gains = read_gains(folder, ledger, standalone, measured)
    values = fairness_dict(found, names) | ({"gains": gains_dict(gains)} if gains else {})
    further = gains_tables(gains, names) if gains else ()
    show_result(values, lambda: [*fairness_tables(found, names, level), *further], as_json)


@app.command(epilog="Example:  fedmerit contribution runs/first --json")
def contribution(folder: RunFolder, as_json: Json = False) -> None:
    """Say what every client's updates were worth to the model, over a run.

    DIR is a folder made by `fedmerit run` with recipe.stages = ["contribution:shapley"], or with a criterion
    contribution:METHOD.
    """
    from fedmerit.study.contributions import contributions_dict, contributions_screen

    with open_run(folder) as ledger:
        found = contributions_dict(ledger)
    show_result(found, lambda: contributions_screen(found), as_json)


@app.command(epilog="Example:  fedmerit suspects runs/first --json")
def suspects(folder: RunFolder, as_json: Json = False) -> None:
    """Say which clients stand out again and again, since when and by what was seen.

    DIR is a folder made by `fedmerit run`. Words say what was seen; they accuse nobody (docs/suspects.md).
    """
    from fedmerit.study.suspects import suspects_dict, suspects_screen

    with open_run(folder) as ledger:
        found = suspects_dict(ledger)
    show_result(found, lambda: suspects_screen(found), as_json)
