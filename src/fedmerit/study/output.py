"""Output of a study: progress, tables on the screen, JSON, and tables in files."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedmerit.core.objectives import measure_label
from fedmerit.engine.logs import log_format, write_log
from fedmerit.errors import ConfigError, FolderError, UnknownName
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.frames import FRAMES, Frame, run_frame
from fedmerit.store.run_folder import LEDGER, open_ledger
from fedmerit.store.strict_json import dump_json
from fedmerit.study.plan import Plan
from fedmerit.study.study import Study
from fedmerit.study.study_folder import RUNS, STUDY, Member, members, tuning_folder
from fedmerit.study.tables import TABLES
from fedmerit.study.text_table import TextTable
from fedmerit.study.workers import Ended, OnStep, Played, Step

QUIET = ("initial", "constant", "data")
"""Kinds of events that are not shown, or are part of the first table."""

STUDY_FRAMES = ("compared", "reached", "metrics", "curves", "worth", "events", "attacks", "tuning")

WITHOUT = {
    "reached": "it has no targets",
    "saved": "it has only one row, or no targets",
    "tuning": "no row has a grid",
    "worth": "it has no row `alone` or `pooled`; set references = true",
    "attacks": "no row has attackers",
}
"""Why a table of a study may be empty."""


@contextmanager
def progress(console: Console, runs: Sequence[Member]) -> Iterator[OnStep]:
    """Show progress with an ETA: on a terminal a bar over the rounds of all runs, else a line per finished run.

    With JSON logs, log each round and each end of a run.
    """
    rounds = {run.folder: run.rounds for run in runs}  # by folder, because runs of several studies may share a name
    ended = {run.folder for run in runs if run.complete}
    total, as_json = sum(run.config.run.rounds for run in runs), log_format() == "json"
    hidden, remaining = as_json or not console.is_terminal, TimeRemainingColumn()
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    columns += [TextColumn("{task.fields[state]}"), TimeElapsedColumn(), TextColumn("ETA"), remaining]
    with Progress(*columns, console=console, disable=hidden, speed_estimate_period=3600) as bar:
        place = bar.add_task(_count(ended, rounds), total=total, completed=sum(rounds.values()), state="")

        def advance(step: Step) -> None:
            answer, folder = step.answer, step.member.folder
            if isinstance(answer, Played):
                rounds[folder] = answer.round
            elif not answer.stopped:
                ended.add(folder)
            done, state = sum(rounds.values()), _state(step)
            bar.update(place, description=_count(ended, rounds), completed=done, state=escape(state))
            if as_json:
                _log_step(step, {"run": str(step.member), "rounds_done": done, "rounds": total})
            elif isinstance(answer, Ended) and (hidden or answer.error):
                eta = remaining.render(bar.tasks[place])
                style = "red" if answer.error else None
                text = f"{_count(ended, rounds)}: {state}, ETA {eta}"
                console.print(text, markup=False, soft_wrap=True, style=style)

        yield advance


def _count(ended: Collection[Path], runs: Collection[Path]) -> str:
    return f"{len(ended)} of {len(runs)} runs"


def _log_step(step: Step, fields: Mapping[str, Any]) -> None:
    if isinstance(step.answer, Played):
        write_log("round", {**fields, "round": step.answer.round})
    else:
        write_log("ended", {**fields, "stopped": step.answer.stopped, "error": step.answer.error or None})


def _state(step: Step) -> str:
    answer = step.answer
    if isinstance(answer, Ended):
        how = "stopped" if answer.stopped else f"failed: {answer.error}" if answer.error else "done"
        return f"{step.member} {how}"
    value = "" if answer.value is None else f" {measure_label(answer.measure)} {answer.value:.4f}"
    return f"{step.member}, round {answer.round}{value}"


def ending(study: Study) -> Iterator[RenderableType]:
    """The screen output of a study: tables, notes on the runs, and failed runs."""
    for table in (table for make_tables in TABLES.values() for table in make_tables(study)):
        yield table.screen()
        yield ""
    for row, kind, text, runs in _notes(study):
        yield f"[yellow]{escape(row)}: {escape(text)} ({escape(kind)}, in {runs} of {len(study.plan.seeds)} seeds)[/]"
    for run, reason in study.failed.items():
        yield f"[red]{escape(run)} failed: {escape(reason)}[/]"


def _notes(study: Study) -> Iterator[tuple[str, str, str, int]]:
    """Yield each kind of event once per row: row, kind, first text and the number of runs in which it occurs.

    Rows that repeat another row under an attack are skipped, because their notes are the same.
    """
    repeated = study.attacks.loc[study.attacks["row"] != study.attacks["recipe"], "row"]
    shown = study.events[~study.events["kind"].isin(QUIET) & ~study.events["row"].isin(repeated)]
    for (row, kind), events in shown.groupby(["row", "kind"], sort=False):
        first = events.iloc[0]
        yield str(row), str(kind), f"round {first['round']}: {first['text']}", int(events["seed"].nunique())


def as_json(study: Study) -> str:
    """The study as one JSON object: comparisons, rounds to target, metrics of the runs, and missing runs."""
    return dump_json(
        {
            "study": study.plan.name,
            "folder": str(study.folder),
            "baseline": study.plan.against,
            "seeds": study.plan.seeds,
            "compared": _records(study.compared),
            "reached": _records(study.reached),
            "metrics": _records(study.metrics),
            "attacks": _records(study.attacks),
            "measure": study.measure,
            "worth": _records(study.worth),
            "unfinished": dict(study.unfinished),
            "failed": dict(study.failed),
            "tuning_seeds": study.plan.tune.seeds if study.tunings else [],
            "tuned": {
                row: {"by": tuned.by, "best": tuned.best, "edges": tuned.edges, "notes": list(tuned.notes)}
                for row, tuned in study.tunings.items()
            },
            "tuning": _records(study.tuning),
        }
    )


def to_play(plan: Plan, folder: Path) -> list[Member]:
    """The runs of a study and of its tunings."""
    points = [point for row in plan.tuned for point in members(plan.tuning(row), tuning_folder(folder, row))]
    return [*points, *members(plan, folder)]


def _records(frame: Frame) -> list[dict[str, Any]]:
    """Convert a frame to records; NaN becomes null, because JSON has no NaN."""
    lines: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return lines


def write_export(folder: Path, out: Path, format: str, table: str | None, *, force: bool = False) -> str:
    """Write one table of a study or a run to a new file, and return the table's name.

    `format` is csv (frames), or latex or markdown (a study's tables as on the screen).
    """
    if format not in (CSV, *TEXT_FORMATS):
        raise UnknownName("format", format, (CSV, *TEXT_FORMATS))
    check_new_file(out, "another --out", force=force)
    study = is_study(folder)
    table = table or ("compared" if study else "rounds")
    if format == CSV:
        frame = _study_frame(folder, table) if study else _run_frame(folder, table)
        write_new_file(out, frame.to_csv(index=False, lineterminator="\n"), "another --out")
    elif study:
        write_new_file(out, _text(Study.load(folder), table, TEXT_FORMATS[format]), "another --out")
    else:
        raise ConfigError(f"{format} is for tables of a study, and {folder} has a run; use --format csv")
    return table


def is_study(folder: Path) -> bool:
    """Whether a folder has a study and not a run; raise a FolderError if it has neither."""
    study, run = (folder / STUDY).is_file(), (folder / LEDGER).is_file()
    if not study and not run:
        raise FolderError(
            f"no run and no study in {folder}: it has neither {LEDGER} nor {STUDY}; give a folder made by "
            "`fedmerit run` or `fedmerit compare`"
        )
    return study


def check_run(folder: Path) -> None:
    """Raise a FolderError if the folder has a study instead of a run."""
    if is_study(folder):
        raise FolderError(f"{folder} has a study, and this command needs one run; give a folder in {folder / RUNS}")


def _study_frame(folder: Path, name: str) -> Frame:
    if name not in STUDY_FRAMES:
        raise UnknownName("table of a study's frames", name, STUDY_FRAMES)
    return getattr(Study.load(folder), name)


def _run_frame(folder: Path, name: str) -> Frame:
    if name not in FRAMES:
        raise UnknownName("table of a run", name, FRAMES)
    with open_ledger(folder) as ledger:
        return run_frame(ledger, name)


def _text(study: Study, name: str, write: Callable[[TextTable, str], str]) -> str:
    """Write the tables of this name, each with a separate label."""
    if name not in TABLES:
        raise UnknownName("table to read", name, TABLES)
    tables = list(TABLES[name](study))
    if not tables:
        raise ConfigError(f"the table {name} of this study is empty: {WITHOUT[name]}; choose another --table")
    numbers = ["", *(f" {number}" for number in range(2, len(tables) + 1))]
    return "\n".join(write(table, f"{name}{number}") for table, number in zip(tables, numbers, strict=True))


CSV = "csv"
TEXT_FORMATS: Mapping[str, Callable[[TextTable, str], str]] = {
    "latex": TextTable.latex,
    "markdown": lambda table, label: table.markdown(),
}
"""Formats of text tables; LaTeX uses the label for references."""
