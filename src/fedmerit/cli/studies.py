"""`fedmerit report`, `compare`, `export` and `demo`: pages, studies and tables."""

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import (
    Force,
    Json,
    Overrides,
    Reading,
    Trust,
    app,
    err_console,
    notes_printed,
    open_run,
    out_console,
    show,
    stoppable,
)
from fedmerit.errors import ConfigError


@app.command(cls=Reading, epilog="Example:  fedmerit report runs/a runs/b --out report.html")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Write an HTML page to this file.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Serve the page while a run goes on.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print a summary instead.")] = False,
    target: Annotated[
        list[float] | None,
        typer.Option(help="With --text: targets; default 0.7 0.8 0.9 0.95.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --live: the port; 0: any.")] = 8321,
    host: Annotated[str, typer.Option(help="With --live: the address.")] = "127.0.0.1",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show runs or a study as an HTML page, live, or as text.

    The page is one file that opens offline: weights and reasons, verdicts, curves. Runs that differ only in their seed
    are drawn as one line with a band. --live serves the page of one folder until Ctrl-C. --text prints the measure,
    percentiles over clients and rounds to target of a run, or the tables of a study; --json prints them as JSON.
    """
    from fedmerit.report.html import write_report

    text = text or as_json
    if live + (out is not None) + text != 1:
        raise ConfigError("give one of --out FILE (a page), --live (a page that follows the run) and --text")
    if target and not text:
        raise ConfigError("--target needs --text")
    if live:
        _serve(folders, host, port)
    elif out is not None:
        write_report(folders, out, force=force)
        out_console.print(f"report: {out}", markup=False)
    else:
        for folder in folders:
            _summarise(folder, target, as_json)


def _summarise(folder: Path, targets: list[float] | None, as_json: bool) -> None:
    """Print the summary of a run, or the tables of a study."""
    from fedmerit.report.summary import summary, summary_tables
    from fedmerit.study.output import as_json as study_json
    from fedmerit.study.output import ending, is_study
    from fedmerit.study.study import Study

    if not is_study(folder):
        with open_run(folder) as ledger:
            values = summary(ledger, targets)
        show(values, lambda: summary_tables(values), as_json)
        return
    if targets:
        raise ConfigError(f"--target is for one run; the targets of the study {folder} are in its plan")
    study = Study.load(folder)
    if as_json:
        typer.echo(study_json(study))
        return
    for part in ending(study):
        out_console.print(part)


def _serve(folders: list[Path], host: str, port: int) -> None:
    """Serve the page of one folder until Ctrl-C."""
    from fedmerit.report.html import read_plotly
    from fedmerit.report.live import LiveServer
    from fedmerit.study.output import is_study

    if len(folders) != 1:
        raise ConfigError(f"--live shows one run or study; got {len(folders)} folders")
    is_study(folders[0])  # refuses a folder without a run or a study
    read_plotly()  # fails here, not when somebody opens the link
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
        typer.Argument(metavar="STUDY.toml", help="A study, or the configuration of a table.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(help="A new folder, or one to resume.", show_default=False)] = None,
    overrides: Overrides = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V,V,...",
            help="Tune a key of train or recipe.",
            show_default=False,
        ),
    ] = None,
    coalitions: Annotated[bool, typer.Option("--coalitions", help="Value each client by all coalitions.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="With --coalitions: seeds from run.seed on.")] = 2,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Parallel runs; default: one per core.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Run recipes over paired seeds, and test the differences.

    STUDY.toml has seeds, a base and rows (docs/compare.md). For each seed all rows share data, first model and selected
    clients. A row with a grid is tuned first, on other seeds. Ctrl-C stops; the same command resumes, also with more
    seeds or rows. A value such as module:attribute names your own Python part, and runs that module's code.

    The configuration of a table is compared with FedAvg, each client alone and all rows pooled.

    With --grid the file is a configuration: every point of the grid runs on seeds 101 to 105, and the point with the
    best mean measure runs with run.seed. Its configuration is best.toml in the folder.

    With --coalitions the file is a configuration: every coalition of its clients is trained, and each client gets its
    Shapley value, the share of the result that is due to its rows (docs/contributions.md). --out is optional.
    """
    if coalitions:
        if grid:
            raise ConfigError("--coalitions excludes --grid")
        _value_clients(study, overrides or [], out, range(seeds), jobs, as_json)
        return
    if out is None:
        raise ConfigError("compare needs --out DIR, a new folder or one to resume")
    from fedmerit.fleet.pool import begin_preload

    begin_preload(("fedmerit.study.workers", "fedmerit.learn.sgd"))  # in parallel with the imports below
    from fedmerit.study.output import as_json as study_json
    from fedmerit.study.output import ending, progress, to_play
    from fedmerit.study.plan import grid_plan, load_plan
    from fedmerit.study.study import compare as run_study
    from fedmerit.study.study_folder import BEST

    plan = grid_plan(study, grid, overrides or []) if grid else load_plan(study, overrides or [])
    given = {"set": overrides, "grid": grid}
    options = [f"--{name} '{value}'" for name, values in given.items() for value in values or ()]
    command = " ".join([f"fedmerit compare {study}", *options, f"--out {out}"])
    with stoppable(command), notes_printed(), ExitStack() as stack:
        on_step = None if as_json else stack.enter_context(progress(out_console, to_play(plan, out)))
        done = run_study(plan, out, jobs=jobs, on_step=on_step)
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


def _value_clients(
    path: Path, overrides: list[str], out: Path | None, seeds: range, jobs: int | None, as_json: bool
) -> None:
    """Train all coalitions of a configuration's clients, and print each client's value."""
    from fedmerit.config.schema import load_config
    from fedmerit.study.coalitions import value_coalitions, values_dict, values_screen

    config = load_config(path, overrides)
    chosen = [config.run.seed + seed for seed in seeds]
    with stoppable(f"fedmerit compare {path} --coalitions{f' --out {out}' if out else ''}"), notes_printed():
        values = value_coalitions(config, chosen, out, jobs, lambda seed: err_console.print(f"seed {seed}: trained"))
    show(values_dict(values), lambda: values_screen(values), as_json)


@app.command(cls=Reading, epilog="Example:  fedmerit export runs/study --format latex --table reached --out table.tex")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `fedmerit run` or `compare`.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="A new file for the table.", show_default=False)] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, latex, markdown, svg, pdf.",
        ),
    ] = "csv",
    table: Annotated[
        str | None,
        typer.Option(
            help="The table; default: compared, or rounds.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            help="A study's figure: curves or differences.",
            show_default=False,
        ),
    ] = None,
    card: Annotated[
        Path | None, typer.Option(help="A new file for the model card, .md or .html.", show_default=False)
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="A new file for the model as ONNX.", show_default=False)] = None,
    force: Force = False,
    trust: Trust = False,
) -> None:
    """Write tables, figures, the model or its card to files.

    Tables of a study: compared, worth, reached, saved, attacks, tuning as latex or markdown; compared, worth, reached,
    metrics, curves, events, attacks, tuning as csv. Tables of a run, as csv: rounds, clients, weights, rewards, audits,
    candidates, events. Figures of a study, as svg or pdf: curves, differences.
    """
    from fedmerit.engine.finished import Run
    from fedmerit.report.card import write_card
    from fedmerit.report.figures import write_figure
    from fedmerit.study.output import check_run, write_export

    if sum(path is not None for path in (out, card, onnx)) != 1:
        raise ConfigError("give one of --out FILE with --format, --card FILE or --onnx FILE")
    if figure is not None:
        if out is None or table is not None:
            raise ConfigError("--figure needs --out FILE, and excludes --table")
        write_figure(folder, figure, form, out, force=force)
        out_console.print(f"{figure}: {out}", markup=False)
        return
    if out is not None:
        out_console.print(f"{write_export(folder, out, form, table, force=force)}: {out}", markup=False)
        return
    check_run(folder)
    if onnx is not None:
        with notes_printed():
            Run.load(folder, trust=trust).write_onnx(onnx, force=force)
        out_console.print(f"ONNX: {onnx}", markup=False)
    elif card is not None:
        run = Run.load(folder)
        with run.ledger:
            write_card(run, card, force=force)
        out_console.print(f"model card: {card}", markup=False)


@app.command(epilog="Example:  fedmerit demo --out demo --rounds 15")
def demo(
    out: Annotated[Path, typer.Option(help="A new folder.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="The first of ten seeds.")] = 1,
) -> None:
    """Compare three recipes where 40 % of the clients are poisoned.

    8 of 20 clients have flipped labels. FedAvg weighs them by size; the other two recipes find them. Prints tables and
    writes an HTML report in about a minute.
    """
    from fedmerit.cli.demo import run_demo

    run_demo(out_console, out, rounds, seed)
