"""Data of a report: what the ledgers of the compared runs say, as plain values ready for JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmerit.errors import FolderError
from fedmerit.folder import open_ledger
from fedmerit.ledger import Ledger
from fedmerit.report.columns import pack_round, shorten
from fedmerit.report.events import group_events
from fedmerit.report.settings import Settings, differences, environment_lines, toml_lines
from fedmerit.report.summary import SHARES, summary

TARGETS = (0.7, 0.8, 0.9, 0.95)
CURVES = ("accuracy", "p10", "p50", "p90")
DIGITS = 6
"""Significant digits of accuracies and other figures of a whole run."""


def collect(folders: Sequence[Path]) -> dict[str, Any]:
    """Everything the page shows; the same ledgers give the same data."""
    runs = [{"label": label, **_read(folder)} for label, folder in zip(labels(folders), folders, strict=True)]
    compared = {part: differences([run[part] for run in runs]) for part in ("config", "environment")}
    return {"targets": TARGETS, "shares": SHARES, "runs": runs, "differs": compared}


def labels(folders: Sequence[Path]) -> list[str]:
    """Folder names, with as many parents as tell them apart; the same folder given twice gets numbers."""
    paths = [folder.resolve().parts for folder in folders]
    names = [""] * len(paths)
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(set(paths)):
            break
    return [f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _read(folder: Path) -> dict[str, Any]:
    try:
        with open_ledger(folder) as ledger:
            meta = ledger.meta()
            config = _config(meta)
            about = {"config": toml_lines(config), "environment": environment_lines(meta)}
            return {"folder": str(folder), **_run(ledger, config), **about}
    except sqlite3.Error as error:
        raise FolderError(f"cannot read the ledger in {folder}: {error}") from None


def _config(meta: Mapping[str, str]) -> Settings:
    """The settings the run was started with; empty for a ledger that keeps none."""
    config = json.loads(meta.get("config", "{}"))
    return config if isinstance(config, dict) else {}


def _run(ledger: Ledger, config: Settings) -> dict[str, Any]:
    rounds = ledger.rounds()
    tested = [row for row in rounds if row["accuracy"] is not None]
    figures = summary(ledger, TARGETS) if tested else {}
    reached = figures.pop("rounds_to_target", {})
    return {
        "names": ledger.names(),
        "recipe": _recipe(config, rounds),
        "figures": {**_costs(rounds), **_shortened(figures)},
        "curve": {
            "round": [row["round"] for row in tested],
            **{key: [shorten(row[key], DIGITS) for row in tested] for key in CURVES},
        },
        "reached": [list(cells.values()) for cells in reached.values()],
        "rounds": [pack_round(row["round"], row["priority"], ledger.earned(row["round"])) for row in rounds],
        "events": group_events(ledger.events()),
    }


def _recipe(config: Settings, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was run: the recipe's parts, the seed and how many rounds were asked for; None where unknown."""
    recipe, run = (config.get(key) or {} for key in ("recipe", "run"))
    orders = [list(order) for order in dict.fromkeys(tuple(row["priority"]) for row in rounds)]
    return {
        "name": recipe.get("name"),
        "priorities": orders or [recipe.get("priority") or []],
        "normalise": recipe.get("normalise"),
        "score": (recipe.get("score") or {}).get("name"),
        "seed": run.get("seed"),
        "planned": run.get("rounds"),
    }


def _costs(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rounds played, bytes and seconds; known before any round was evaluated."""
    return {
        "played": rounds[-1]["round"] if rounds else 0,
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": shorten(sum(sum(row["seconds"].values()) for row in rounds), DIGITS),
    }


def _shortened(figures: Mapping[str, Any]) -> dict[str, Any]:
    if not figures:
        return {}
    best = figures["best"]
    return {
        **{key: shorten(figures[key], DIGITS) for key in CURVES},
        "best": {"round": best["round"], "accuracy": shorten(best["accuracy"], DIGITS)},
    }
