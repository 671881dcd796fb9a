"""Commands on several runs: reports, studies, exports."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Force, Json, Logs, app, out_console, stoppable
from fedmerit.errors import ConfigError


@app.command(epilog="Example:  fedmerit report runs/a runs/b --out report.html")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="The HTML file to write.", show_default=False)] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show one folder in the browser while it goes on; writes no file.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of --live; 0: any that is free.")] = 8321,
    host: Annotated[str, typer.Option(help="Where --live listens; past loopback the link has a token.")] = "127.0.0.1",
    force: Force = False,
) -> None:
    """Write one HTML file that opens offline: curves, weights, reasons; or show it live.

    DIR... are one or several folders made by `fedmerit run` or `fedmerit compare`. Runs that differ in the seed alone
    are drawn as one line with a band. With --live the page of one folder grows while its runs go on; Ctrl-C ends it.
    """
    from fedmerit.report.html import write_report

    if live == (out is not None):
        raise ConfigError("give --out FILE for a page in a file, or --live for one in the browser")
    if live:
        _serve(folders, host, port)
    elif out is not None:
        write_report(folders, out, force=force)
        out_console.print(f"report: {out}", markup=False)


def _serve(folders: list[Path], host: str, port: int) -> None:
    """Serve the page of one folder until Ctrl-C."""
    from fedmerit.report.html import read_plotly
    from fedmerit.report.live import LiveServer
    from fedmerit.study.output import is_study

    if len(folders) != 1:
        raise ConfigError(f"--live shows one run or study; got {len(folders)} folders")
    is_study(folders[0])  # a folder that holds neither a run nor a study is refused here
    read_plotly()  # says what is missing before anybody opens a link
    try:
        server = LiveServer(host, port, folders[0])
    except OSError as error:
        raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror or error}; give another --port") from None
    out_console.print(f"live: {server.address}", markup=False, soft_wrap=True)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)


@app.command(epilog="Example:  fedmerit compare examples/study.toml --out runs/study")
def compare(
    study: Annotated[
        Path,
        typer.Argument(metavar="STUDY.toml", help="Rows and seeds; with --grid a configuration.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option(help="The study's folder: new, or an earlier one to resume.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the base, e.g. train.lr=0.05."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V,...", help="Choose a key of train or recipe from values; repeatable."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    log: Logs = None,
    as_json: Json = False,
) -> None:
    """Run rows x seeds, paired, and say which differences are real.

    STUDY.toml has seeds, a base and rows (docs/study.md); a name module:attribute in it, or in --set, is a part of your
    own, and runs that module's code. For each seed all rows share data, first model and draw of
    clients. A row with a grid (tune) is tuned first, on seeds of its own. Ctrl-C stops; the same command resumes it,
    also with more seeds or rows.

    With --grid the file is a configuration, and the study has one row: every point of the grid runs on seeds 101..105,
    the one with the best mean accuracy is run with run.seed, and best.toml in the folder is its configuration.
    """
    from fedmerit.fleet.pool import begin_preload

    begin_preload(("fedmerit.study.workers", "fedmerit.learn.sgd"))  # takes as long as the imports below
    from fedmerit.study.output import as_json as study_json
    from fedmerit.study.output import ending, progress, to_play
    from fedmerit.study.plan import grid_plan, load_plan
    from fedmerit.study.study import compare as run_study
    from fedmerit.study.study_folder import BEST

    plan = grid_plan(study, grid, overrides or []) if grid else load_plan(study, overrides or [])
    given = {"set": overrides, "grid": grid, "log": log}
    options = [f"--{name} '{value}'" for name, values in given.items() for value in values or ()]
    command = " ".join([f"fedmerit compare {study}", *options, f"--out {out}"])
    with stoppable(command), ExitStack() as stack:
        on_step = None if as_json else stack.enter_context(progress(out_console, to_play(plan, out)))
        done = run_study(plan, out, jobs=jobs, on_step=on_step, log=log or [])
    if grid and not done.failed:
        (tuned,) = done.tunings.values()
        shutil.copy(tuned.study.folder / BEST, out / BEST)
    if as_json:
        typer.echo(study_json(done))
    else:
        for part in ending(done):
            out_console.print(part)
        following = f"fedmerit run {out / BEST} --out DIR" if grid else f"fedmerit report {out} --out report.html"
        out_console.print(f"next: {following}", style="dim", markup=False, soft_wrap=True)
    if done.failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit export runs/study --format latex --table reached --out table.tex")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `fedmerit run` or `compare`.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Write a table to this new file.")] = None,
    form: Annotated[
        str, typer.Option("--format", help="csv, parquet, latex or markdown; of a figure svg or pdf.")
    ] = "csv",
    table: Annotated[
        str | None, typer.Option(help="Which table; default: compared of a study, rounds of a run.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(help="A study's figure instead of a table: accuracy or differences.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Write a run's model card (Markdown) to this new file.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write a run's model as ONNX to this new file.")] = None,
    force: Force = False,
) -> None:
    """Write a table or a figure of a study, a table of a run, or a run's model.

    Of a study: compared, reached, saved, attacks, tuning as latex or markdown; compared, reached, metrics,
    curves, events, attacks, tuning as csv or parquet. Of a run, as csv or parquet: rounds, clients,
    weights, rewards, audits, candidates, events. A study's figures, accuracy and differences, as svg or pdf.
    """
    from fedmerit.engine.finished import Run
    from fedmerit.report.card import write_card
    from fedmerit.report.figures import write_figure
    from fedmerit.store.run_folder import open_ledger
    from fedmerit.study.output import check_run, write_export

    if sum(one is not None for one in (out, card, onnx)) != 1:
        raise ConfigError("give one of --out FILE with --format, --card FILE or --onnx FILE")
    if figure is not None:
        if out is None or table is not None:
            raise ConfigError("--figure goes to --out FILE, and not with --table")
        write_figure(folder, figure, form, out, force=force)
        out_console.print(f"{figure}: {out}", markup=False)
        return
    if out is not None:
        out_console.print(f"{write_export(folder, out, form, table, force=force)}: {out}", markup=False)
        return
    check_run(folder)
    if onnx is not None:
        Run.load(folder).write_onnx(onnx, force=force)
        out_console.print(f"ONNX: {onnx}", markup=False)
        return
    with open_ledger(folder) as ledger:
        if card is not None:
            write_card(ledger, card, force=force)
            out_console.print(f"model card: {card}", markup=False)


@app.command(epilog="Example:  fedmerit demo --out demo --rounds 15")
def demo(
    out: Annotated[Path, typer.Option(help="A new folder for the study and the report.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="The first of the seven seeds that all rows share.")] = 1,
) -> None:
    """Flip the labels of 40 % of the clients: FedAvg against recipes that notice; tables and an HTML report."""
    from fedmerit.cli.demo import run_demo

    run_demo(out_console, out, rounds, seed)
