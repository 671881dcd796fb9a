"""Data of a report: what the ledgers of the compared runs hold, as plain values ready for JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedmerit.core.criteria.table import about_criterion, display_name
from fedmerit.core.recipe_json import part_text
from fedmerit.errors import FolderError, UserError
from fedmerit.report.folders import Row, Selection, make_rows, select_runs
from fedmerit.report.headline import find_baseline, headline
from fedmerit.report.rows import RunResult, measure_run, row_data
from fedmerit.report.run_detail import group_events, has_groups, run_detail
from fedmerit.report.settings import SEED, Settings, differences, environment_of, settings_of, toml_lines
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import FREE_KEYS, LEDGER

UNPAIRED = (SEED, *FREE_KEYS, "run.audit", "run.evaluate_every")
"""Settings of [run] in which rows may differ and still be compared in pairs."""

TABLE = ("title", "header", "rows", "below")
"""What the page needs of a `TextTable`."""


@dataclass(frozen=True, slots=True)
class PageRun:
    """One run of the page: its settings, the orders, scores and ways to normalise that it used, its result.

    `panels` names the panels that it has data for, beyond those of every run.
    """

    folder: Path
    config: Settings
    meta: Mapping[str, str]
    orders: Sequence[Sequence[str]]
    scores: Sequence[str]
    normalises: Sequence[str]
    result: RunResult
    panels: Sequence[str]


def collect(
    folders: Sequence[Path], budget: int, encode: Callable[[Any], str]
) -> tuple[dict[str, Any], dict[int, str]]:
    """What the page shows of all runs, and the encoded detail of as many runs as the budget allows, by the run's place.

    The first seeds of all rows come first, then the second ones; the first run is included whatever its size.
    """
    selection, rows, runs = read_runs(folders)
    details: dict[int, str] = {}
    for place in (place for nth in zip_longest(*(row.runs for row in rows)) for place in nth if place is not None):
        encoded = encode(read_detail(runs[place].folder))
        if details and sum(map(len, details.values())) + len(encoded) > budget:
            break
        details[place] = encoded
    return page_data(selection, rows, runs, details), details


def read_runs(folders: Sequence[Path]) -> tuple[Selection, list[Row], list[PageRun]]:
    """The runs in the folders, and the rows that they make up."""
    selection = select_runs(folders)
    runs = [_read_run(run.folder, selection) for run in selection.runs]
    return selection, make_rows(selection.runs, [run.config for run in runs]), runs


def read_detail(folder: Path) -> dict[str, Any]:
    """Everything that the page shows of one run when a reader selects it."""
    with _reading(folder) as ledger:
        return run_detail(ledger)


def page_data(
    selection: Selection, rows: Sequence[Row], runs: Sequence[PageRun], details: Container[int]
) -> dict[str, Any]:
    """What the page shows of all runs; `details` are the places of those whose detail can be had."""
    about: dict[str, Any] = {"waiting": selection.waiting, "targets": selection.targets, "shares": selection.shares}
    about |= {"tuned": [{key: getattr(table, key) for key in TABLE} for table in selection.tuned]}
    page = _page(rows, runs, details)
    verdict = _verdict(rows, runs, page["differs"]["config"], selection.baseline)
    return about | page | {"verdict": verdict, "criteria": _criteria(runs)}


def _verdict(
    rows: Sequence[Row], runs: Sequence[PageRun], differ: Sequence[Mapping[str, Any]], named: str | None
) -> dict[str, Any] | None:
    """The rows against the baseline; None where they cannot be paired: other data, rounds or draws of clients."""
    paired = not any(one["key"].startswith(("task.", "run.")) and one["key"] not in UNPAIRED for one in differ)
    recipes = [(runs[row.runs[0]].config.get("recipe") or {}).get("name") for row in rows]
    baseline = find_baseline(rows, recipes, named)
    return headline(rows, [run.result for run in runs], baseline) if paired else None


def _criteria(runs: Sequence[PageRun]) -> list[list[str]]:
    """Every criterion of the page: its name, the name spelt out, and what it is; pairs, as a name may be any text."""
    names = dict.fromkeys(name for run in runs for order in run.orders for name in order)
    return [[name, display_name(name), about_criterion(name)] for name in names]


def _page(rows: Sequence[Row], runs: Sequence[PageRun], details: Container[int]) -> dict[str, Any]:
    config = [settings_of([toml_lines(runs[place].config) for place in row.runs]) for row in rows]
    environment = [environment_of([runs[place].meta for place in row.runs]) for row in rows]
    row_of = {place: number for number, row in enumerate(rows) for place in row.runs}
    return {
        "rows": [
            {
                "label": row.label,
                "runs": row.runs,
                **_recipe([runs[place] for place in row.runs]),
                **row_data([runs[place].result for place in row.runs]),
                "config": config[number],
                "environment": environment[number],
            }
            for number, row in enumerate(rows)
        ],
        "runs": [
            {
                "row": row_of[place],
                "folder": str(run.folder),
                "played": run.result.costs["played"],
                "detail": place in details,
                "has": run.panels,
            }
            for place, run in enumerate(runs)
        ],
        "differs": {
            "config": differences(config),
            "environment": [row["key"] for row in differences([environment_of([run.meta]) for run in runs])],
        },
    }


@contextmanager
def _reading(folder: Path) -> Iterator[Ledger]:
    """A ledger to read from without a trace, also while its run goes on; a damaged one is the folder's fault."""
    try:
        with Ledger.open(folder / LEDGER, watch=True) as ledger:
            yield ledger
    except UserError:
        raise
    except (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise FolderError(
            f"cannot read the ledger in {folder}: it is damaged ({type(error).__name__}: {error}); "
            "leave that folder out, or run it again"
        ) from None


def _read_run(folder: Path, selection: Selection) -> PageRun:
    with _reading(folder) as ledger:
        meta, rounds, events = ledger.meta(), ledger.rounds(), ledger.events()
        config = config_of(meta)
        settings = config.get("run") or {}
        stopped = any(event.kind == "stopped" for event in events)
        result = RunResult(
            settings.get("seed"),
            len(ledger.names()),
            len(rounds) if stopped else settings.get("rounds"),
            _costs(rounds),
            measure_run(ledger, rounds, selection.targets, selection.shares),
            group_events(events),
        )
        orders = [list(order) for order in dict.fromkeys(tuple(row["priority"]) for row in rounds)]
        scores, normalises = (
            [*dict.fromkeys(row[key] for row in rounds if row[key])] for key in ("score", "normalise")
        )
        searched = any(ledger.candidates(row["round"]) for row in rounds)
        panels = ["search"] * searched + ["groups"] * has_groups(rounds)  # groups may appear late
        return PageRun(folder, config, meta, orders, scores, normalises, result, panels)


def config_of(meta: Mapping[str, str]) -> Settings:
    """The settings the run was started with; empty for a ledger that keeps none."""
    config = json.loads(meta.get("config") or meta.get("settings", "{}"))
    return config if isinstance(config, dict) else {}


def criteria_of(recipe: Settings) -> list[str]:
    """The names of the criteria that [recipe] gives; none where it keeps those of the named recipe.

    >>> criteria_of({"name": "qffl", "criteria": [{"name": "LossPower", "q": 2.0}, "DS"]})
    ['LossPower', 'DS']
    """
    return [str(one.get("name") if isinstance(one, dict) else one) for one in recipe.get("criteria") or ()]


def _recipe(runs: Sequence[PageRun]) -> dict[str, Any]:
    """What was run; score and normalise are those that the rounds used, which a search may choose."""
    recipe = runs[0].config.get("recipe") or {}
    orders = [list(order) for order in dict.fromkeys(tuple(order) for run in runs for order in run.orders)]
    scores = dict.fromkeys(part_text(score) for run in runs for score in run.scores)
    normalises = dict.fromkeys(normalise for run in runs for normalise in run.normalises)
    return {
        "recipe": recipe.get("name"),
        "priorities": orders or [criteria_of(recipe)],
        "normalise": " or ".join(normalises) or None,
        "score": " or ".join(scores) or None,
    }


def _costs(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Rounds played, bytes and seconds; known before any round was evaluated."""
    return {
        "played": rounds[-1]["round"] if rounds else 0,
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": sum(sum(row["seconds"].values()) for row in rounds),
    }
