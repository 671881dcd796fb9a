"""Commands on attackers: a grid of attacks, and who is suspected in a run."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Json, RunFolder, app, out_console, stoppable
from fedmerit.store.strict_json import dump_json


@app.command(epilog="Example:  fedmerit attack examples/attack.toml --seeds 3 --page attacks.html")
def attack(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="A grid, or the configuration of a run.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The grid's folder: new, or an earlier one to resume; default: runs/attack-NAME."),
    ] = None,
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", help="A kind of attack; repeatable. Default: the file's, or all.")
    ] = None,
    shares: Annotated[
        list[float] | None, typer.Option("--share", help="A share of attackers; repeatable. Default: 0.2 and 0.4.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option("--row", help="A row of the file, by name; repeatable. Default: all.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of every cell: 1, 2, ...; default: 3.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write a heat map to this new HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this new Markdown file.")] = None,
    as_json: Json = False,
) -> None:
    """Attack every recipe in every way, and say how bad it gets.

    CONFIG.toml has seeds, attacks, shares, a base and rows (docs/suspects.md), or is the configuration of a run, whose
    recipe is set beside fedavg. Prints the worst case per recipe, accuracy, attack success, the weight that attackers
    hold, and how many of them are suspected. Ctrl-C stops; the same command resumes it.
    """
    from fedmerit.report.attack_page import attack_page
    from fedmerit.store.files import check_new_file, write_new_file
    from fedmerit.study.attack_grid import run_grid
    from fedmerit.study.attack_output import grid_dict, grid_markdown, grid_tables
    from fedmerit.study.attack_plan import load_attack_plan
    from fedmerit.study.output import progress

    for file, option in ((page, "--page"), (markdown, "--markdown")):
        if file is not None:
            check_new_file(file, f"another {option}")
    folder = out or Path("runs") / f"attack-{config.stem}"
    plan = load_attack_plan(config, attacks=attacks or (), shares=shares or (), rows=rows or (), seeds=seeds)
    options = [*(f"--attack {kind}" for kind in attacks or []), *(f"--share {share:g}" for share in shares or [])]
    options += [f"--row {shlex.quote(row)}" for row in rows or []]
    options += [] if seeds is None else [f"--seeds {seeds}"]
    command = " ".join(["fedmerit attack", str(config), *options, f"--out {folder}"])
    with stoppable(command):
        grid = run_grid(plan, folder, jobs=jobs, watch=None if as_json else partial(progress, out_console))
    if page is not None:
        write_new_file(page, attack_page(grid), "another --page")
    if markdown is not None:
        write_new_file(markdown, grid_markdown(grid, f"{command} --markdown {markdown}"), "another --markdown")
    if as_json:
        typer.echo(dump_json(grid_dict(grid)))
    else:
        for table in grid_tables(grid):
            out_console.print(table.screen())
            out_console.print()
        for run, reason in grid.failed.items():
            out_console.print(f"{run} failed: {reason}", style="red", markup=False)
    if grid.failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit suspects runs/first --json")
def suspects(folder: RunFolder, as_json: Json = False) -> None:
    """Say which clients stand out again and again, since when and by what was seen.

    DIR is a folder made by `fedmerit run`. Words say what was seen; they accuse nobody (docs/suspects.md).
    """
    from fedmerit.report.suspects import suspects_dict, suspects_screen
    from fedmerit.store.run_folder import open_ledger

    with open_ledger(folder) as ledger:
        found = suspects_dict(ledger)
    if as_json:
        typer.echo(dump_json(found))
        return
    for part in suspects_screen(found):
        out_console.print(part)
