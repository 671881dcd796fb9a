"""Folders of a report: which runs the given folders hold, and which of them are one row."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.errors import FolderError
from fedmerit.report.settings import SEED, Line, Settings, toml_lines
from fedmerit.store.run_folder import FREE_KEYS, LEDGER
from fedmerit.study.study import Study, read_tuned
from fedmerit.study.study_folder import RUNS, STUDY, members, read_plan
from fedmerit.study.text_table import TextTable
from fedmerit.study.worth import compared_rows, worth_tables

SEEDED = re.compile(r"(?P<row>.+)-seed\d+")
"""A run folder named after its row: fedavg-seed3."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder; `row` is the name of its row in its study, or else in its own name; None where it has neither.

    `home` is the folder that the row's name belongs to.
    """

    folder: Path
    row: str | None
    home: Path


@dataclass(frozen=True, slots=True)
class Row:
    """Runs that differ in nothing but the seed, by their places among all runs."""

    label: str
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs to report on; how many more their studies plan; the targets and shares that these studies set.

    `baseline` is the row that the study compares with, where there is one study. `tuned` are the tables of points of
    these studies' rows that have a grid, `worth` those of what federation is worth. `own_targets`: a study sets them.
    """

    runs: Sequence[RunFolder]
    waiting: int
    targets: Sequence[float]
    shares: Sequence[float]
    tuned: Sequence[TextTable] = ()
    baseline: str | None = None
    worth: Sequence[TextTable] = ()
    own_targets: bool = False


def select_runs(folders: Sequence[Path]) -> Selection:
    """The started runs of a study's folder, or the one run of any other folder."""
    runs: list[RunFolder] = []
    tuned, worth, own_targets = list[TextTable](), list[TextTable](), False
    waiting, targets, shares, baselines = 0, set[float](), set[float](), list[str]()
    for folder in folders:
        if not (folder / STUDY).is_file():
            runs.append(_single_run(folder))
            continue
        plan = read_plan(folder)
        planned = members(plan, folder)
        begun = [RunFolder(member.folder, member.row, folder.resolve()) for member in planned if member.begun]
        if not begun:
            raise FolderError(f"the study in {folder} has no run yet: {folder / RUNS} holds none; run it first")
        runs += begun
        tuned += [read_tuned(plan, row, folder).table() for row in plan.tuned]
        if compared_rows(plan):
            unfinished = {str(member): member.rounds for member in planned if not member.finished}
            worth += worth_tables(Study(folder, plan, tuple(planned), unfinished))
        own_targets |= "targets" in plan.model_fields_set
        waiting += len(planned) - len(begun)
        targets |= {*plan.targets}
        shares |= {*plan.shares}
        baselines.append(plan.against)
    baseline = baselines[0] if len(baselines) == 1 else None
    chosen = sorted(targets if own_targets else TARGETS), sorted(shares or SHARES)
    return Selection(runs, waiting, *chosen, tuned, baseline, worth, own_targets)


def _single_run(folder: Path) -> RunFolder:
    """A run folder; a folder that only holds run folders is an easy slip and gets its own message."""
    inside = folder.iterdir() if folder.is_dir() else ()
    if not (folder / LEDGER).is_file() and any((path / LEDGER).is_file() for path in inside):
        raise FolderError(f"no run in {folder} itself: it holds run folders; give these: {folder}/*")
    named = SEEDED.fullmatch(folder.resolve().name)
    return RunFolder(folder, named["row"] if named else None, folder.resolve().parent)


def make_rows(runs: Sequence[RunFolder], configs: Sequence[Settings]) -> list[Row]:
    """The rows, in the order of their first runs.

    Runs are one row where their settings are equal except for the seed (and for what changes no result), and where
    the names of their rows are equal, if they have any. A repeated seed starts another row: a run counted twice would
    make a band look narrower than it is. So does a run of unknown settings.
    """
    rows: dict[object, list[int]] = {}
    seen: Counter[object] = Counter()
    for place, (run, config) in enumerate(zip(runs, configs, strict=True)):
        kind = (run.row, _without_seed(config) if config else place)
        seed = (config.get("run") or {}).get("seed")
        rows.setdefault((kind, seen[kind, seed]), []).append(place)
        seen[kind, seed] += 1
    names = labels([_path([runs[place] for place in places]) for places in rows.values()])
    return [Row(name, tuple(places)) for name, places in zip(names, rows.values(), strict=True)]


def labels(paths: Sequence[Sequence[str]]) -> list[str]:
    """The last parts of paths, as many as tell them apart; a path that occurs twice gets numbers."""
    names = [""] * len(paths)
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(set(map(tuple, paths))):
            break
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _path(runs: Sequence[RunFolder]) -> tuple[str, ...]:
    """The row's name below its home: its given name, else what the folders' names begin with."""
    names = [run.folder.resolve().name for run in runs]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    common = names[0] if len(names) == 1 else "".join(letter for letter, *_ in letters).rstrip("-_.= ")
    return (*runs[0].home.parts, runs[0].row or common or f"{names[0]} and {len(names) - 1} more")


def _without_seed(config: Settings) -> tuple[Line, ...]:
    """The settings, without those in which runs of one row may differ."""
    return tuple(line for line in toml_lines(config) if line[0] not in FREE_KEYS | {SEED})
