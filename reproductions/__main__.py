"""`python -m reproductions`: a published table again; `python -m reproductions errata`: what does not hold in it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Json, out_console, run_command, stoppable
from fedmerit.core.types import ACCURACY
from fedmerit.errors import ConfigError
from fedmerit.store.files import check_new_file
from fedmerit.store.strict_json import dump_json
from fedmerit.study.output import progress
from reproductions.errata import ERRATA, find_erratum
from reproductions.errata import output as errata_output
from reproductions.reproduce import find_reproduction
from reproductions.reproduce.measured import read_measured, run_missing
from reproductions.reproduce.output import (
    as_dict,
    ending,
    list_screen,
    listing,
    opening,
    result_screen,
    write_page,
)
from reproductions.reproduce.pmcfl import tables_of
from reproductions.reproduce.rates import RATE, rate_folder, rate_plan, read_rate, search_rate
from reproductions.reproduce.reproduction import expected
from reproductions.reproduce.runner import reproduce as run_reproduction
from reproductions.reproduce.runner import so_far

PROGRAM = "python -m reproductions"

table_app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)
errata_app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)


def main() -> None:
    """Run the command: `errata` as the first argument has options different from those of a table."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["errata"]:
        run_command(partial(errata_app, arguments[1:], prog_name=f"{PROGRAM} errata"))
    else:
        run_command(partial(table_app, arguments, prog_name=PROGRAM))


@table_app.command(epilog=f"Example:  {PROGRAM} pmcfl-table4 --out runs/table4 --page table4.md")
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
    measured: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file that gets a line per finished run; runs that it has are skipped. Tables are made of it.",
            show_default=False,
        ),
    ] = None,
    report_only: Annotated[bool, typer.Option("--so-far", help="Run nothing: tell what the folder holds.")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the names with their time at each scale.")] = False,
    as_json: Json = False,
) -> None:
    """Run a published table or figure again, published and measured side by side.

    Paired seeds and intervals in every cell, known errata marked in place. Ctrl-C stops; the same command resumes it.
    See reproductions/README.md. `python -m reproductions errata` shows what does not hold in the papers.
    """

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
    command = f"{PROGRAM} {name} {' '.join(options)} --out {out}"
    lr, rate = None, ""
    if tune_rate:
        tuning = rate_plan(reproduction, scale)
        with stoppable(command):
            tuned = read_rate(out) if report_only else search_rate(tuning, out, jobs=jobs)
        lr = None if tuned.best is None else tuned.best[RATE]
        if lr is not None:
            rate = (
                f"learning rate {lr:g}: the best of the search in {rate_folder(out)}, by {tuning.tune.about(ACCURACY)}"
            )
    plans = reproduction.plans(scale, seeds, rows or [], lr, or_equal=or_equal, null=null)
    if not as_json and not report_only:
        runs = sum(len(plan.rows) * len(plan.seeds) for plan in plans.values())
        for line in opening(reproduction, scale, expected(plans, reproduction.setting(scale), jobs), runs):
            out_console.print(line, markup=False, soft_wrap=True)
        if rate:
            out_console.print(rate, markup=False, soft_wrap=True)
    watch = None if as_json else partial(progress, out_console)
    if measured is not None:
        tables, (plan,) = tables_of(reproduction), plans.values()
        with stoppable(f"{command} --measured {measured}"):
            run = read_measured if report_only else partial(run_missing, out=out, jobs=jobs, watch=watch)
            found = run(plan, file=measured, alike=tables.alike)
        for part in result_screen(tables.of_measured(reproduction.setting(scale), found)):
            out_console.print(part)
        return
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


@errata_app.command(epilog=f"Example:  {PROGRAM} errata finding-1 --plot finding1.svg")
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

    if (name is not None) + names + markdown > 1 or (as_json and (names or markdown)):
        raise ConfigError(
            "give NAME, --list, --markdown or nothing, which is all; --json goes with NAME or with nothing"
        )
    erratum = None if name is None else find_erratum(name)
    if plot is not None:
        errata_output.write_plot(plot, name)
    if names or markdown:
        typer.echo("\n".join(ERRATA) if names else errata_output.page(), nl=names)
    elif as_json:
        entries = [errata_output.as_dict(one) for one in (ERRATA.values() if erratum is None else [erratum])]
        typer.echo(dump_json(entries if erratum is None else entries[0]))
    else:
        for part in [errata_output.overview()] if erratum is None else errata_output.account(erratum):
            out_console.print(part)


if __name__ == "__main__":
    main()
