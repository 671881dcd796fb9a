"""Folders of a report: a study's folder stands for its runs, and runs that differ in the seed alone are one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from fedmerit.errors import FolderError
from fedmerit.folder import FREE_KEYS, LEDGER
from fedmerit.report.settings import SEED, Line, Settings, toml_lines

STUDY, RUNS = "study.toml", "runs"
SEEDED = re.compile(r"(?P<row>.+)-seed(?P<seed>\d+)")
"""The folder of one of a row's runs: fedavg-seed3."""


def expand(given: Sequence[Path]) -> list[Path]:
    """The run folders that are meant: a folder with study.toml and runs/ stands for all of its runs, others for one."""
    return [run for folder in given for run in (_runs_of(folder) if (folder / STUDY).is_file() else [_run(folder)])]


def _runs_of(study: Path) -> list[Path]:
    """By row and seed; a name that begins with a dot is a run folder that is being made."""
    inside = [path for path in _folders(study / RUNS) if not path.name.startswith(".")]
    if not inside:
        raise FolderError(f"the study in {study} has no run yet: {study / RUNS} holds none; let it play some first")
    return [_run(path) for path in sorted(inside, key=_place)]


def _run(folder: Path) -> Path:
    """A run folder; one that only holds some is told apart, for it is an easy slip."""
    if not (folder / LEDGER).is_file() and any((path / LEDGER).is_file() for path in _folders(folder)):
        raise FolderError(f"no run in {folder} itself: it holds run folders; give these: {folder}/*")
    return folder


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _place(path: Path) -> tuple[str, int]:
    """Seed 10 comes after seed 9."""
    found = SEEDED.fullmatch(path.name)
    return (found["row"], int(found["seed"])) if found else (path.name, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """Runs that differ in nothing but the seed, by their places among all runs."""

    label: str
    runs: tuple[int, ...]


def make_rows(folders: Sequence[Path], configs: Sequence[Settings]) -> list[Row]:
    """In the order of their first runs.

    Runs are of one row where their settings are the same but for the seed (and for what changes no result), and where
    their folders have the same name up to `-seed`, if they have names of that kind. A seed that comes again begins
    another row: a run counted twice would make a band look surer than it is. So does a run of unknown settings.
    """
    rows: dict[object, list[int]] = {}
    seen: Counter[object] = Counter()
    for place, (folder, config) in enumerate(zip(folders, configs, strict=True)):
        found = SEEDED.fullmatch(folder.resolve().name)
        kind = (found and found["row"], _alike(config) if config else place)
        again = seen[kind, _seed(config)]
        seen[kind, _seed(config)] += 1
        rows.setdefault((kind, again), []).append(place)
    names = labels([_row_path([folders[place] for place in places]) for places in rows.values()])
    return [Row(name, tuple(places)) for name, places in zip(names, rows.values(), strict=True)]


def labels(folders: Sequence[Path]) -> list[str]:
    """Folder names, with as many parents as tell them apart; the same folder given twice gets numbers."""
    paths = [folder.resolve().parts for folder in folders]
    names = [""] * len(paths)
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(set(paths)):
            break
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _row_path(folders: Sequence[Path]) -> Path:
    """What the folders of a row have in common, as if it were a folder: runs/fedavg of runs/fedavg-seed1, -seed2."""
    first = folders[0].resolve()
    if found := SEEDED.fullmatch(first.name):
        return first.with_name(found["row"])
    if len(folders) == 1:
        return first
    signs = zip(*(folder.resolve().name for folder in folders), strict=False)
    common = "".join(sign[0] for sign in takewhile(lambda each: len(set(each)) == 1, signs)).rstrip("-_.= ")
    return first.with_name(common or f"{first.name} and {len(folders) - 1} more")


def _seed(config: Settings) -> object:
    return (config.get("run") or {}).get("seed")


def _alike(config: Settings) -> tuple[Line, ...]:
    """The settings, without those that runs of one row may differ in."""
    return tuple(line for line in toml_lines(config) if line[0] not in FREE_KEYS | {SEED})
