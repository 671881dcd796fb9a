"""A view: the page of a run, a study or a tuning while it grows, as data at once and then in pieces."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fedmerit.report.data import page_data
from fedmerit.report.folders import make_rows, select_runs
from fedmerit.report.live import LiveRun

OFTEN = 0.2
"""Seconds between two looks at the files."""
STILL = ("label", "runs", "recipe", "config", "environment", "curve")
"""What of a row does not change, or is told in pieces."""
AGES = ("age",)
"""What changes by itself: no reason to tell the page."""


class View:
    """The runs that the page of one folder shows; several readers share it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock, self._looked = folder, Lock(), 0.0
        self._runs: dict[Path, LiveRun] = {}
        self._page: dict[str, Any] = {}

    def look(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What the page shows of all runs, and what each does now; raises `FolderError` before the first has begun."""
        with self._lock:
            if time.monotonic() - self._looked >= OFTEN or not self._page:
                self._refresh()
                self._looked = time.monotonic()
            return self._page, [run.now() for run in self._runs.values()]

    def run(self, place: int) -> LiveRun | None:
        """A run by its place on the page."""
        runs = [*self._runs.values()]
        return runs[place] if 0 <= place < len(runs) else None

    def _refresh(self) -> None:
        selection = select_runs([self.folder])
        folders = [run.folder for run in selection.runs]
        new = [*self._runs] != folders
        self._runs = {folder: self._runs.get(folder) or LiveRun(folder) for folder in folders}
        changed = [run.refresh() for run in self._runs.values()]
        if not new and not any(changed) and self._page:
            return
        runs = [run.page_run(selection.targets, selection.shares) for run in self._runs.values()]
        rows = make_rows(selection.runs, [run.config for run in runs])
        self._page = page_data(selection, rows, runs, range(len(runs)))


def piece(before: Mapping[str, Any] | None, page: Mapping[str, Any]) -> dict[str, Any]:
    """What changed of a page since: rows without what never does, and of curves the new points alone.

    `anew` where the runs are others: then the page is asked for again.
    """
    if before is not None and _shape(before) != _shape(page):
        return {"anew": True}
    told: dict[str, Any] = {}
    olds = before["rows"] if before else [None] * len(page["rows"])
    rows = [
        [i, _row_piece(old, row)] for i, (old, row) in enumerate(zip(olds, page["rows"], strict=True)) if old != row
    ]
    if rows:
        told["rows"] = rows
    if before is None or before["runs"] != page["runs"]:
        told["runs"] = [{key: run[key] for key in ("played", "has")} for run in page["runs"]]
    for key in ("verdict", "waiting", "criteria"):
        if before is None or before[key] != page[key]:
            told[key] = page[key]
    return told


def _shape(page: Mapping[str, Any]) -> Any:
    return [(row["label"], row["runs"]) for row in page["rows"]], [run["folder"] for run in page["runs"]]


def _row_piece(old: Mapping[str, Any] | None, row: Mapping[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in row.items() if key not in STILL and (old is None or old[key] != value)}
    return changed | {"curve": _curve_piece(old["curve"] if old else None, row["curve"])}


def _curve_piece(old: Mapping[str, Any] | None, curve: Mapping[str, Any]) -> dict[str, Any]:
    """The points after those that are there already and the same; all where a measure or a seed came."""
    have = len(old["round"]) if old else 0
    names = [(one["name"], one["at"], len(one["lines"])) for one in curve["measures"]]
    same = old is not None and names == [(one["name"], one["at"], len(one["lines"])) for one in old["measures"]]
    same = (
        same
        and old is not None
        and all(
            line[:have] == before
            for one, other in zip(curve["measures"], old["measures"], strict=True)
            for line, before in zip(one["lines"], other["lines"], strict=True)
        )
    )
    start = have if same and old is not None and curve["round"][:have] == old["round"] else 0
    lines = [one | {"lines": [line[start:] for line in one["lines"]]} for one in curve["measures"]]
    return {"from": start, "round": curve["round"][start:], "measures": lines}


def doings(now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What runs do, without what changes by itself."""
    return [{key: value for key, value in one.items() if key not in AGES} for one in now]
