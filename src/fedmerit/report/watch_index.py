"""The index of a watched folder: every run, study and tuning in it, how far each is, and how well it does."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmerit.errors import UserError
from fedmerit.report.data import config_of, criteria_of
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import LEDGER, MODEL
from fedmerit.store.status import FAILED, STOPPED, read_status
from fedmerit.study.study_folder import RUNS, STUDY, TUNE

DEEPEST = 5
"""Folders below the one that is watched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run, a study or a tuning, and the name of its folder below the one that is watched."""

    folder: Path
    name: str
    kind: str


def find_entries(root: Path) -> list[Entry]:
    """All of them, by name; runs of a study stand for themselves as well."""
    return sorted(_walk(root, root, 0), key=lambda entry: entry.name)


def _walk(root: Path, folder: Path, depth: int) -> Iterator[Entry]:
    kind = _kind(folder)
    if kind:
        yield Entry(folder, str(folder.relative_to(root)) if folder != root else folder.resolve().name, kind)
    if kind == "run" or depth == DEEPEST:
        return
    inside: list[Path] = []
    with suppress(OSError), os.scandir(folder) as found:
        inside = [Path(one.path) for one in found if one.is_dir(follow_symlinks=False) and one.name[0] != "."]
    for path in inside:
        yield from _walk(root, path, depth + 1)


def _kind(folder: Path) -> str:
    kinds = {LEDGER: "run", STUDY: "study", TUNE: "tuning"}
    return next((kind for name, kind in kinds.items() if (folder / name).is_file()), "")


def index_rows(entries: Mapping[str, Entry]) -> list[dict[str, Any]]:
    """A line per entry, as the index shows it."""
    return [{"key": key, "name": entry.name, "kind": entry.kind} | _about(entry) for key, entry in entries.items()]


def _about(entry: Entry) -> dict[str, Any]:
    if entry.kind != "run":
        runs = [path for path in (entry.folder / RUNS).glob("*") if (path / LEDGER).is_file()]
        done = sum((path / MODEL).is_file() for path in runs)
        alive = any(now is not None and now.alive for now in map(read_status, runs))
        state = "running" if alive else "finished" if runs and done == len(runs) else "begun"
        return {"state": state, "rounds": f"{done} of {len(runs)} runs", "accuracy": None, "about": ""}
    try:
        with Ledger.open(entry.folder / LEDGER, watch=True) as ledger:
            config, played = config_of(ledger.meta()), ledger.last_round()
            row = ledger.last_tested()
    except (UserError, sqlite3.Error):
        return {"state": "unreadable", "rounds": "", "accuracy": None, "about": ""}
    planned = (config.get("run") or {}).get("rounds")
    recipe, task = config.get("recipe") or {}, config.get("task") or {}
    words = [
        str(task.get("data") or ""),
        str(recipe.get("name") or ""),
        " > ".join(criteria_of(recipe)),
    ]
    now = read_status(entry.folder)
    ended = "finished" if (entry.folder / MODEL).is_file() else "not running"
    state = (
        ended if now is None else "running" if now.alive else now.stage if now.stage in (STOPPED, FAILED) else "killed"
    )
    rounds = f"{played} of {planned}" if planned else str(played)
    return {"state": state, "rounds": rounds, "accuracy": row, "about": " ".join(filter(None, words))}
