"""Data of a report: what the ledgers of the compared runs say, as plain values ready for JSON."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedmerit.errors import FolderError, UserError
from fedmerit.report.detail import has_groups, run_detail
from fedmerit.report.events import group_events
from fedmerit.report.folders import Meant, Row, expand, make_rows
from fedmerit.report.measured import measure_run
from fedmerit.report.rows import Played, row_data
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.settings import Settings, differences, environment_of, settings_of, toml_lines


@dataclass(frozen=True, slots=True)
class Opened:
    """One run as its ledger tells it in short, and what it ran with."""

    folder: Path
    config: Settings
    meta: Mapping[str, str]
    orders: Sequence[Sequence[str]]
    scores: Sequence[str]
    played: Played
    has: Sequence[str]
    """Which panels it has something for, beyond those of every run."""


def collect(given: Sequence[Path], room: int, pack: Callable[[Any], str]) -> tuple[dict[str, Any], dict[int, str]]:
    """What the page shows of all runs, and the detail of as many as there is room for, packed, by the run's place.

    The first runs of all rows come first, then the second ones; the first of all is there whatever its size.
    """
    meant = expand(given)
    runs = [_open(one.folder, meant) for one in meant.runs]
    rows = make_rows(meant.runs, [run.config for run in runs])
    details: dict[int, str] = {}
    for place in _first_seeds_first(rows):
        with _reading(runs[place].folder) as ledger:
            packed = pack(run_detail(ledger, ledger.rounds()))
        if details and sum(map(len, details.values())) + len(packed) > room:
            break
        details[place] = packed
    about = {"waiting": meant.waiting, "targets": meant.targets, "shares": meant.shares}
    return about | _page(rows, runs, details), details


def _first_seeds_first(rows: Sequence[Row]) -> Iterator[int]:
    return (place for nth in zip_longest(*(row.runs for row in rows)) for place in nth if place is not None)


def _page(rows: Sequence[Row], runs: Sequence[Opened], details: Mapping[int, str]) -> dict[str, Any]:
    config = [settings_of([toml_lines(runs[place].config) for place in row.runs]) for row in rows]
    around = [environment_of([runs[place].meta for place in row.runs]) for row in rows]
    row_of = {place: number for number, row in enumerate(rows) for place in row.runs}
    return {
        "rows": [
            {
                "label": row.label,
                "runs": row.runs,
                **_recipe([runs[place] for place in row.runs]),
                **row_data([runs[place].played for place in row.runs]),
                "config": config[number],
                "environment": around[number],
            }
            for number, row in enumerate(rows)
        ],
        "runs": [
            {
                "row": row_of[place],
                "folder": str(run.folder),
                "played": run.played.costs["played"],
                "detail": place in details,
                "has": run.has,
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
    """A ledger to read from; what is wrong inside of it is a matter of the folder, not of the program."""
    try:
        with open_ledger(folder) as ledger:
            yield ledger
    except UserError:
        raise
    except (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise FolderError(
            f"cannot read the ledger in {folder}: it is damaged ({type(error).__name__}: {error}); "
            "leave that folder out, or play the run again"
        ) from None


def _open(folder: Path, meant: Meant) -> Opened:
    with _reading(folder) as ledger:
        meta, rounds = ledger.meta(), ledger.rounds()
        config = _config(meta)
        run = config.get("run") or {}
        played = Played(
            run.get("seed"),
            len(ledger.names()),
            run.get("rounds"),
            _costs(rounds),
            measure_run(ledger, rounds, meant.targets, meant.shares),
            group_events(ledger.events()),
        )
        orders = [list(order) for order in dict.fromkeys(tuple(row["priority"]) for row in rounds)]
        scores = [*dict.fromkeys(row["score"] for row in rounds if row["score"])]
        return Opened(folder, config, meta, orders, scores, played, list(_has(ledger, rounds)))


def _config(meta: Mapping[str, str]) -> Settings:
    """The settings the run was started with; empty for a ledger that keeps none."""
    config = json.loads(meta.get("config", "{}"))
    return config if isinstance(config, dict) else {}


def _has(ledger: Ledger, rounds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A search tries in every round that it plays; groups may come late."""
    if any(ledger.tried(row["round"]) for row in rounds):
        yield "search"
    if has_groups(rounds):
        yield "groups"


def _recipe(runs: Sequence[Opened]) -> dict[str, Any]:
    """What was run; score and normalise as the recipe has them, for it may know better than the settings say."""
    recipe = runs[0].config.get("recipe") or {}
    orders = [list(order) for order in dict.fromkeys(tuple(order) for run in runs for order in run.orders)]
    scores = [*dict.fromkeys(score for run in runs for score in run.scores)]
    normalise = re.search(r"\bnormalise='(\w+)'", runs[0].meta.get("recipe", ""))
    return {
        "recipe": recipe.get("name"),
        "priorities": orders or [recipe.get("priority") or []],
        "normalise": normalise[1] if normalise else None,
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
