"""The command line: parse, call, print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from fedmerit.config import load_config, make_config, parse_value
from fedmerit.cores import cores
from fedmerit.criteria import CRITERIA, Attribute
from fedmerit.criteria_file import read_criteria
from fedmerit.errors import ConfigError, RunStopped, UserError
from fedmerit.measures import TARGETS
from fedmerit.named_recipes import RECIPES
from fedmerit.named_scores import SCORES, make_score
from fedmerit.objectives import GROUPED, PLAIN
from fedmerit.weights import by_client
from fedmerit.weights import weigh as weigh_table

app = typer.Typer(
    name="fedmerit",
    help="Federated learning in which a client's weight is earned, and explained.",
    epilog="Start with:  fedmerit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)

out_console = Console(highlight=False)
err_console = Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedmerit run`.", show_default=False)]


def main() -> None:
    """Run the command line; a user's mistake ends with 2 and one message, a failure with 1."""
    try:
        app()
    except UserError as error:
        err_console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output went away, for example `fedmerit tasks | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("FEDMERIT_DEBUG"):
            raise
        text = f"failed: {type(error).__name__}: {error} (FEDMERIT_DEBUG=1 shows where)"
        err_console.print(text, style="red", markup=False, soft_wrap=True)
        sys.exit(1)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"fedmerit {version('fedmerit')}")
        raise typer.Exit


@app.callback()
def _root(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example:  fedmerit run examples/digits.toml --set recipe.priority=CB,DS --out runs/first")
def run(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="What to run.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.", show_default=False)] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder instead.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; default: one per core.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. train.lr=0.05; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a federation and keep everything it did in a folder.

    CONFIG.toml has the sections task, train, recipe and run; examples/ has one for each task. Ctrl-C stops after the
    round; --resume goes on, to the very bits of a run that was never stopped.
    """
    from fedmerit.folder import CONFIG, open_ledger
    from fedmerit.report.screen import json_line, progress
    from fedmerit.run import resume as go_on
    from fedmerit.run import run_config

    folder = out or resume
    if folder is None or (out and resume) or (out and not config):
        raise ConfigError("give CONFIG.toml and --out DIR for a new run, or --resume DIR to go on with one")
    done = 0
    if resume:
        with open_ledger(resume) as ledger:
            done = ledger.last_round()
    changes = [*(overrides or []), *([f"run.workers={workers}"] if workers is not None else [])]
    settings = load_config(config or folder / CONFIG, changes)
    start = partial(run_config, settings, folder) if out else partial(go_on, folder, settings)
    if settings.run.workers and settings.run.workers > cores():
        err_console.print(f"hint: {settings.run.workers} workers share {cores()} cores; one per core is fastest")
    with _stoppable(f"fedmerit run --resume {folder}"):
        if as_json:
            start(lambda record: typer.echo(json_line(record)))
            return
        with progress(out_console, settings.run.rounds, done=done) as on_record:
            ended = start(on_record)
    out_console.print(
        f"accuracy {ended.accuracy:.4f} after {settings.run.rounds} rounds; kept in {folder}", markup=False
    )
    out_console.print(
        f"next: fedmerit explain {folder} --round {settings.run.rounds}", style="dim", markup=False, soft_wrap=True
    )


@contextmanager
def _stoppable(again: str) -> Iterator[None]:
    """Tell the command that goes on with what was stopped."""
    try:
        yield
    except (RunStopped, KeyboardInterrupt) as stop:
        err_console.print(
            f"{str(stop) or 'stopped at once'}; go on with: {again}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


@app.command(epilog="Example:  fedmerit weigh clients.csv --priority DS,CB,IS --normalise max")
def weigh(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="A line per client: client,DS,CB,...")],
    priority: Annotated[str, typer.Option(help="Columns, most important first: DS,CB,IS.", show_default=False)],
    score: Annotated[
        str, typer.Option(help='The operator: a name, or a table such as \'{name="owa", quantifier="most"}\'.')
    ] = "prioritized",
    normalise: Annotated[str, typer.Option(help="sum, max, minmax, or none (values are degrees in 0..1).")] = "sum",
    as_json: Json = False,
) -> None:
    """Turn a table of criteria into weights, without any training: what if?

    FILE.csv has a header and a line per client, for example client,DS,CB,IS.
    """
    recipe = make_config({"recipe": {"priority": priority, "score": parse_value(score), "normalise": normalise}}).recipe
    table = read_criteria(file)
    if not recipe.priority:
        raise ConfigError(f"--priority names at least one column of {', '.join(table.names)}")
    raw = table.columns(recipe.priority)
    sizes = table.columns(["DS"])[:, 0] if "DS" in table.names else np.zeros(len(raw))
    fallback = sizes if sizes.any() else np.ones(len(raw))
    result = weigh_table(raw, recipe.priority, make_score(recipe.score, recipe.priority), recipe.normalise, fallback)
    if as_json:
        values = {"scores": result.scores.tolist(), "weights": result.weights.tolist()}
        typer.echo(json.dumps({"clients": table.clients, **values}))
        return
    from fedmerit.report.screen import show_note, weights_table

    rows = by_client(result, recipe.priority, range(len(raw)), {})
    title = f"{' > '.join(recipe.priority)}   score {recipe.score.name}, normalise {recipe.normalise}"
    out_console.print(weights_table(title, recipe.priority, rows, table.clients))
    for note in result.notes:
        show_note(err_console, note, "note: ")


@app.command(epilog="Example:  fedmerit explain runs/first --round 10 --client 17")
def explain(
    folder: RunFolder,
    number: Annotated[int, typer.Option("--round", help="The round to explain.", show_default=False)],
    client: Annotated[str | None, typer.Option(help="One client, by name or number.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Say why each client of a round got its weight.

    DIR is a folder made by `fedmerit run`.
    """
    from fedmerit.folder import open_ledger
    from fedmerit.report.explain import as_dict, explain_client, explain_round, find_client

    with open_ledger(folder) as ledger:
        who = None if client is None else find_client(ledger, client)
        if as_json:
            typer.echo(json.dumps(as_dict(ledger, number, who)))
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
    """Sum up a run: accuracy, percentiles over clients, rounds to target.

    DIR is a folder made by `fedmerit run`.
    """
    from fedmerit.folder import open_ledger
    from fedmerit.report.summary import summary, summary_tables

    with open_ledger(folder) as ledger:
        result = summary(ledger, target or TARGETS, or_equal=or_equal)
    if as_json:
        typer.echo(json.dumps(result))
        return
    for part in summary_tables(result):
        out_console.print(part)


@app.command(epilog="Example:  fedmerit fairness runs/m2f --level 0.9")
def fairness(
    folder: RunFolder,
    level: Annotated[float, typer.Option(help="Local accuracy that counts as converged, in 0..1.")] = 0.9,
    as_json: Json = False,
) -> None:
    """Compare what clients put in with what came of it: speed, accuracy, rewards.

    DIR is a folder made by `fedmerit run`.
    """
    from fedmerit.fairness import fairness_of
    from fedmerit.folder import open_ledger
    from fedmerit.report.accounts import fairness_dict, fairness_tables

    with open_ledger(folder) as ledger:
        found, names = fairness_of(ledger, level), ledger.names()
    if as_json:
        typer.echo(json.dumps(fairness_dict(found, names)))
        return
    for part in fairness_tables(found, names, level):
        out_console.print(part)


@app.command(epilog="Example:  fedmerit report runs/a runs/b --out report.html")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.", show_default=False)],
) -> None:
    """Write one HTML file that opens offline: curves, weights, reasons.

    DIR... are one or several folders made by `fedmerit run` or `fedmerit compare`. Runs that differ in the seed alone
    are drawn as one line with a band.
    """
    from fedmerit.report.html import write_report

    write_report(folders, out)
    out_console.print(f"report: {out}", markup=False)


@app.command(epilog="Example:  fedmerit compare examples/study.toml --out runs/study")
def compare(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="Rows and seeds.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The study's folder: new, or the same again to go on.", show_default=False)],
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    as_json: Json = False,
) -> None:
    """Run rows x seeds, paired, and say which differences are real.

    STUDY.toml has seeds, a base and rows (docs/study.md). For each seed all rows share data, first model and draw of
    clients. Ctrl-C stops; the same command goes on, also with more seeds or rows.
    """
    from fedmerit.study.compare import compare as run_study
    from fedmerit.study.layout import members
    from fedmerit.study.plan import load_plan
    from fedmerit.study.screen import as_json as study_json
    from fedmerit.study.screen import ending, progress

    plan = load_plan(study)
    with _stoppable(f"fedmerit compare {study} --out {out}"), ExitStack() as stack:
        on_step = None if as_json else stack.enter_context(progress(out_console, members(plan, out)))
        done = run_study(plan, out, jobs=jobs, on_step=on_step)
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
    out: Annotated[Path | None, typer.Option(help="The folder: new, or the same again to go on.")] = None,
    scale: Annotated[str, typer.Option(help="small (minutes), medium (hours) or paper (as published).")] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every row: 1, 2, ...")] = 5,
    rows: Annotated[
        list[str] | None, typer.Option(help="Some rows only, and the baseline; repeatable.", show_default=False)
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the result as Markdown to this new file.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    told: Annotated[bool, typer.Option("--so-far", help="Run nothing: tell what the folder holds.")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the names with their time at each scale.")] = False,
    as_json: Json = False,
) -> None:
    """Run a published table or figure again, published and measured side by side.

    Paired seeds and intervals in every cell, known errata marked in place. Ctrl-C stops; the same command goes on.
    See docs/reproduce.md.
    """
    from fedmerit.new_file import check_new_file
    from fedmerit.reproduce import find_reproduction
    from fedmerit.reproduce.entry import expected
    from fedmerit.reproduce.go import reproduce as run_reproduction
    from fedmerit.reproduce.go import so_far
    from fedmerit.reproduce.page import write_page
    from fedmerit.reproduce.screen import as_dict, ending, list_screen, listing, opening
    from fedmerit.study.screen import progress

    if names:
        typer.echo(json.dumps(listing())) if as_json else out_console.print(list_screen())
        return
    if name is None or out is None:
        raise ConfigError("give NAME and --out DIR, or --list, which has the names")
    found = find_reproduction(name)
    plans = found.plans(scale, seeds, rows or [])
    if page is not None:
        check_new_file(page, "another --page")
    if not as_json and not told:
        runs = sum(len(plan.rows) * len(plan.seeds) for plan in plans.values())
        for line in opening(found, scale, expected(plans, found.setting(scale), jobs), runs):
            out_console.print(line, markup=False, soft_wrap=True)
    options = [f"--scale {scale}", f"--seeds {seeds}", *(f"--rows '{row}'" for row in rows or [])]
    command = f"fedmerit reproduce {name} {' '.join(options)} --out {out}"
    watch = None if as_json else partial(progress, out_console)
    with _stoppable(command):
        go = so_far if told else partial(run_reproduction, jobs=jobs, watch=watch)
        made = go(found, scale, plans, out)
    if page is not None:
        write_page(made, page, command)
    if as_json:
        typer.echo(json.dumps(as_dict(made)))
    else:
        for part in ending(made):
            out_console.print(part)
    if made.failed:
        raise typer.Exit(1)


@app.command(epilog="Example:  fedmerit export runs/study --format latex --table reached --out table.tex")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `fedmerit run` or `compare`.", show_default=False)
    ],
    leaf: Annotated[
        Path | None, typer.Option(help="Write a run's metrics in LEAF's columns (CSV) to this file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a table to this new file.")] = None,
    form: Annotated[str, typer.Option("--format", help="csv, parquet, latex or markdown.")] = "csv",
    table: Annotated[
        str | None, typer.Option(help="Which table; default: compared of a study, rounds of a run.")
    ] = None,
) -> None:
    """Write a table of a study or a run: CSV, Parquet, LaTeX, Markdown, or LEAF's metrics.

    Of a study: compared, reached, saved, agreement as latex or markdown; compared, reached, figures, curves, needed,
    events as csv or parquet. Of a run, as csv or parquet: rounds, clients, weights, rewards, audits, tries, events.
    """
    from fedmerit.folder import open_ledger
    from fedmerit.leaf import write_leaf_metrics
    from fedmerit.study.export import check_run, write_export

    if (out is None) == (leaf is None):
        raise ConfigError("give --out FILE with --format, or --leaf FILE for LEAF's metrics")
    if leaf is not None:
        check_run(folder)
        with open_ledger(folder) as ledger:
            write_leaf_metrics(ledger, leaf)
        out_console.print(f"LEAF metrics: {leaf}", markup=False)
    elif out is not None:
        out_console.print(f"{write_export(folder, out, form, table)}: {out}", markup=False)


@app.command(epilog="Example:  fedmerit demo --out demo --rounds 15")
def demo(
    out: Annotated[Path, typer.Option(help="A new folder for the three runs and the report.")] = Path("demo"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="The seed all three runs share.")] = 1,
) -> None:
    """Compare FedAvg with two priorities on embedded data; prints a table, writes an HTML report."""
    from fedmerit.report.demo import run_demo

    run_demo(out_console, out, rounds, seed)


@app.command(epilog="Example:  fedmerit flower examples/digits.toml --loopback --set task.clients=4 --out runs/flower")
def flower(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    folder: Annotated[
        Path | None, typer.Option("--app", help="Make a Flower app in this new folder, for `flwr run`.")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(help="Run on this SuperLink: a connection's name, or HOST:PORT.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--loopback", help="Run on a SuperLink and SuperNodes started on this machine.")
    ] = False,
    simulation: Annotated[bool, typer.Option("--simulation", help="Run in Flower's simulation (Ray).")] = False,
    out: Annotated[Path, typer.Option(help="Where the ServerApp keeps the run.")] = Path("runs/flower"),
    secure: Annotated[bool, typer.Option(help="With --loopback: TLS, and a key for each node.")] = False,
    authority: Annotated[
        Path | None, typer.Option("--root-certificates", help="With HOST:PORT: the authority's certificate.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With HOST:PORT: plain text.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. train.lr=0.05; repeatable."),
    ] = None,
) -> None:
    """Run a configuration on Flower: the same recipe on SuperNodes, one for each client of the task.

    Give one of --app, --superlink, --loopback and --simulation. See docs/flower.md.
    """
    try:
        from fedmerit.flower.new import write_app
        from fedmerit.flower.start import on_loopback, on_simulation, on_superlink
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs Flower ({error.name} is missing): pip install 'fedmerit[flower]'") from None
    if sum((folder is not None, superlink is not None, here, simulation)) != 1:
        raise ConfigError("give one of --app DIR, --superlink NAME, --loopback and --simulation")
    settings, say = load_config(config, overrides or []), partial(out_console.print, markup=False, soft_wrap=True)
    if superlink:
        on_superlink(settings, out, superlink, authority, plain=insecure, say=say)
    elif here:
        on_loopback(settings, out, secure=secure, say=say)
    elif simulation:
        on_simulation(settings, out)
    elif folder:
        write_app(folder, settings, out)
        say(f"Flower app: {folder}; next: flwr run {folder} SUPERLINK --stream")


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
    from fedmerit.errata import ERRATA, find_erratum
    from fedmerit.report.errata import account, as_dict, overview, page, write_plot

    if (name is not None) + names + markdown > 1 or (as_json and (names or markdown)):
        raise ConfigError(
            "give NAME, --list, --markdown or nothing, which is all; --json goes with NAME or with nothing"
        )
    found = None if name is None else find_erratum(name)
    if plot is not None:
        write_plot(plot, name)
    if names or markdown:
        typer.echo("\n".join(ERRATA) if names else page(), nl=names)
    elif as_json:
        typer.echo(json.dumps([as_dict(one) for one in ERRATA.values()] if found is None else as_dict(found)))
    else:
        for part in [overview()] if found is None else account(found):
            out_console.print(part)


@app.command(epilog="Example:  fedmerit tasks --json")
def tasks(as_json: Json = False) -> None:
    """List the tasks: data, partitions, models."""
    from fedmerit.tasks import TASKS

    rows = [(k.name, k.about, ", ".join(k.partitions), ", ".join(k.models)) for k in TASKS.values()]
    _list("Tasks (task.data)", ("task", "about", "partitions", "models"), rows, as_json)


@app.command(epilog="Example:  fedmerit recipes")
def recipes(as_json: Json = False) -> None:
    """List the recipes."""
    _list("Recipes (recipe.name)", ("recipe", "about"), [(n, r.about) for n, r in RECIPES.items()], as_json)


@app.command(epilog="Example:  fedmerit scores --json")
def scores(as_json: Json = False) -> None:
    """List the scores: how criteria become one number."""
    rows = [(name, score.about, ", ".join(score.options)) for name, score in SCORES.items()]
    _list("Scores (recipe.score)", ("score", "about", "options"), rows, as_json)


@app.command(epilog="Example:  fedmerit criteria")
def criteria(as_json: Json = False) -> None:
    """List the criteria, their family and the facts they need."""
    known = [*CRITERIA.values(), Attribute("NAME")]
    rows = [(c.name, str(c.family), ", ".join(c.needs) or "(server)", c.about) for c in known]
    rows.append(("validated:OBJECTIVE", "target", "(server)", "an objective of `fedmerit objectives` at the server"))
    _list("Criteria (recipe.priority)", ("criterion", "family", "facts", "about"), rows, as_json)


@app.command(epilog="Example:  fedmerit objectives --json")
def objectives(as_json: Json = False) -> None:
    """List the objectives: what a server can ask of a model on rows of its own."""
    plain = [(name, first_line(made)) for name, made in PLAIN.items()]
    grouped = [(f"{name}:ATTRIBUTE", first_line(made)) for name, made in GROUPED.items()]
    _list("Objectives (validated:OBJECTIVE, run.audit)", ("objective", "about"), [*plain, *grouped], as_json)


def first_line(made: Callable[..., object]) -> str:
    """What a function's docstring says first."""
    return (made.__doc__ or "").partition("\n")[0]


def _list(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
        return
    from fedmerit.report.screen import list_table

    out_console.print(list_table(title, header, rows))
