"""Commands on several runs: reports, studies, the papers' tables again, exports, errata."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Force, Json, Logs, app, out_console, stoppable
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit report runs/a runs/b --out report.html")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.", show_default=False)],
    force: Force = False,
) -> None:
    """Write one HTML file that opens offline: curves, weights, reasons.

    DIR... are one or several folders made by `fedmerit run` or `fedmerit compare`. Runs that differ in the seed alone
    are drawn as one line with a band.
    """
    from fedmerit.report.html import write_report

    write_report(folders, out, force=force)
    out_console.print(f"report: {out}", markup=False)


@app.command(epilog="Example:  fedmerit compare examples/study.toml --out runs/study")
def compare(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="Rows and seeds.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="The study's folder: new, or an earlier one to resume.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the base, e.g. train.lr=0.05."),
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
    """
    from fedmerit.fleet.pool import begin_preload

    begin_preload(("fedmerit.study.worker", "fedmerit.learn.sgd"))  # takes as long as the imports below
    from fedmerit.study.output import as_json as study_json
    from fedmerit.study.output import ending, progress, to_play
    from fedmerit.study.plan import load_plan
    from fedmerit.study.study import compare as run_study

    plan = load_plan(study, overrides or [])
    options = [*(f"--set '{one}'" for one in overrides or []), *(f"--log '{one}'" for one in log or [])]
    command = " ".join([f"fedmerit compare {study}", *options, f"--out {out}"])
    with stoppable(command), ExitStack() as stack:
        on_step = None if as_json else stack.enter_context(progress(out_console, *to_play(plan, out)))
        done = run_study(plan, out, jobs=jobs, on_step=on_step, log=log or [])
    if as_json:
        typer.echo(study_json(done))
    else:
        for part in ending(done):
            out_console.print(part)
        out_console.print(f"next: fedmerit report {out} --out report.html", style="dim", markup=False, soft_wrap=True)
    if done.failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit reproduce pmcfl-table4 --out runs/table4 --page table4.md")
def reproduce(
    name: Annotated[str | None, typer.Argument(help="What to reproduce; --list has the names.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder: new, or an earlier one to resume.")] = None,
    scale: Annotated[str, typer.Option(help="small (minutes), medium (hours) or paper (as published).")] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every row: 1, 2, ...")] = 5,
    rows: Annotated[
        list[str] | None, typer.Option(help="Some rows only, and the baseline; repeatable.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of every run; default: those of the scale.", show_default=False)
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the result as Markdown to this new file.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    or_equal: Annotated[bool, typer.Option(help="Count devices at a target, not only above it.")] = False,
    null: Annotated[
        bool, typer.Option("--null", help="Add a null row: the baseline with other clients and batches drawn.")
    ] = False,
    tune_rate: Annotated[
        bool, typer.Option("--tune-rate", help="First search the learning rate on the baseline, as the paper did.")
    ] = False,
    report_only: Annotated[bool, typer.Option("--so-far", help="Run nothing: tell what the folder holds.")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the names with their time at each scale.")] = False,
    as_json: Json = False,
) -> None:
    """Run a published table or figure again, published and measured side by side.

    Paired seeds and intervals in every cell, known errata marked in place. Ctrl-C stops; the same command resumes it.
    See docs/reproduce.md.
    """
    from fedmerit.papers.reproduce import find_reproduction
    from fedmerit.papers.reproduce.output import as_dict, ending, list_screen, listing, opening, write_page
    from fedmerit.papers.reproduce.rates import RATE, rate_folder, rate_tuning, search_rate
    from fedmerit.papers.reproduce.reproduction import expected
    from fedmerit.papers.reproduce.runner import reproduce as run_reproduction
    from fedmerit.papers.reproduce.runner import so_far
    from fedmerit.store.files import check_new_file
    from fedmerit.study.output import progress
    from fedmerit.study.tune import Tuned

    if names:
        typer.echo(dump_json(listing())) if as_json else out_console.print(*list_screen(), sep="\n")
        return
    if name is None or out is None:
        raise ConfigError("give NAME and --out DIR, or --list, which has the names")
    reproduction = find_reproduction(name)
    if rounds is not None:
        reproduction = reproduction.with_rounds(rounds)
    if page is not None:
        check_new_file(page, "another --page")
    options = [f"--scale {scale}", f"--seeds {seeds}", *(f"--rows '{row}'" for row in rows or [])]
    options += [f"--rounds {rounds}"] * (rounds is not None)
    options += ["--or-equal"] * or_equal + ["--null"] * null + ["--tune-rate"] * tune_rate
    command = f"fedmerit reproduce {name} {' '.join(options)} --out {out}"
    lr, rate = None, ""
    if tune_rate:
        tuning = rate_tuning(reproduction, scale)
        with stoppable(command):
            tuned = Tuned.load(rate_folder(out)) if report_only else search_rate(tuning, out, jobs=jobs)
        lr = None if tuned.best is None else tuned.best[RATE]
        if lr is not None:
            rate = f"learning rate {lr:g}: the best of the search in {rate_folder(out)}, by {tuning.about}"
    plans = reproduction.plans(scale, seeds, rows or [], lr, or_equal=or_equal, null=null)
    if not as_json and not report_only:
        runs = sum(len(plan.rows) * len(plan.seeds) for plan in plans.values())
        for line in opening(reproduction, scale, expected(plans, reproduction.setting(scale), jobs), runs):
            out_console.print(line, markup=False, soft_wrap=True)
        if rate:
            out_console.print(rate, markup=False, soft_wrap=True)
    watch = None if as_json else partial(progress, out_console)
    with stoppable(command):
        reproduce_all = so_far if report_only else partial(run_reproduction, jobs=jobs, watch=watch)
        reproduced = reproduce_all(reproduction, scale, plans, out)
    if page is not None:
        write_page(reproduced, page, command, rate)
    if as_json:
        typer.echo(dump_json(as_dict(reproduced)))
    else:
        for part in ending(reproduced):
            out_console.print(part)
    if reproduced.failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit export runs/study --format latex --table reached --out table.tex")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `fedmerit run`, `compare` or `tune`.", show_default=False)
    ],
    leaf: Annotated[
        Path | None, typer.Option(help="Write a run's metrics in LEAF's columns (CSV) to this file.")
    ] = None,
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

    Of a study: compared, reached, saved, agreement, attacks, tuning as latex or markdown; compared, reached, metrics,
    curves, needed, events, attacks, tuning as csv or parquet. Of a tuning: points. Of a run, as csv or parquet: rounds,
    clients, weights, rewards, audits, candidates, events. A study's figures, accuracy and differences, as svg or pdf.
    """
    from fedmerit.engine.finished import Run
    from fedmerit.report.card import write_card
    from fedmerit.report.figures import write_figure
    from fedmerit.store.leaf import write_leaf_metrics
    from fedmerit.store.run_folder import open_ledger
    from fedmerit.study.output import check_run, write_export

    if sum(one is not None for one in (out, leaf, card, onnx)) != 1:
        raise ConfigError("give one of --out FILE with --format, --leaf FILE, --card FILE or --onnx FILE")
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
        if leaf is not None:
            write_leaf_metrics(ledger, leaf, force=force)
            out_console.print(f"LEAF metrics: {leaf}", markup=False)
        elif card is not None:
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


@app.command(epilog="Example:  fedmerit errata finding-1 --plot finding1.svg")
def errata(
    name: Annotated[str | None, typer.Argument(help="One of them; --list has the names.", show_default=False)] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the names alone.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/errata.md.")] = False,
    plot: Annotated[Path | None, typer.Option(help="A new SVG file, for finding-1.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Show what does not hold in the papers, recomputed from the numbers they print.

    Without NAME a line for each with its verdict; with NAME the computation, step by step.
    """
    from fedmerit.papers.errata import ERRATA, find_erratum
    from fedmerit.papers.errata.output import account, as_dict, overview, page, write_plot

    if (name is not None) + names + markdown > 1 or (as_json and (names or markdown)):
        raise ConfigError(
            "give NAME, --list, --markdown or nothing, which is all; --json goes with NAME or with nothing"
        )
    erratum = None if name is None else find_erratum(name)
    if plot is not None:
        write_plot(plot, name)
    if names or markdown:
        typer.echo("\n".join(ERRATA) if names else page(), nl=names)
    elif as_json:
        typer.echo(dump_json([as_dict(one) for one in ERRATA.values()] if erratum is None else as_dict(erratum)))
    else:
        for part in [overview()] if erratum is None else account(erratum):
            out_console.print(part)
