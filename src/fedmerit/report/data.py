"""Data of a report: what the ledgers of the compared runs hold, as plain values ready for JSON."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedmerit.core.criteria.table import about_criterion, display_name
from fedmerit.core.objectives import direction, is_share, measure_label
from fedmerit.core.types import ACCURACY
from fedmerit.errors import FolderError, UserError
from fedmerit.report.folders import Row, Selection, make_rows, select_runs
from fedmerit.report.headline import find_baseline, headline
from fedmerit.report.rows import RunResult, measure_run, row_data, shared_end
from fedmerit.report.run_detail import group_events, has_groups, run_detail
from fedmerit.report.settings import SEED, Settings, differences, environment_of, settings_of, toml_lines
from fedmerit.store.ledger import Ledger
from fedmerit.store.run_folder import APP, DATA, FREE_KEYS, LEDGER
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.data_report import DataReport

UNPAIRED = (SEED, *FREE_KEYS, "run.audit", "run.measure", "run.evaluate_every")
"""Settings of [run] in which rows may differ and still be compared in pairs."""

TABLE = ("title", "header", "rows", "below")
"""What the page needs of a `TextTable`."""


@dataclass(frozen=True, slots=True)
class PageRun:
    """One run of the page: its settings, the orders of criteria that it used, its result.

    `panels` names the panels that it has data for, beyond those of every run; `measure` is that of the page.
    """

    folder: Path
    config: Settings
    meta: Mapping[str, str]
    orders: Sequence[Sequence[str]]
    result: RunResult
    panels: Sequence[str]
    measure: str


def collect(
    folders: Sequence[Path], budget: int, encode: Callable[[Any], str]
) -> tuple[dict[str, Any], dict[int, str]]:
    """What the page shows of all runs, and the encoded detail of as many runs as the budget allows, by the run's place.

    The first seeds of all rows come first, that of the best row before the others, then the second ones; the first run
    is included whatever its size.
    """
    selection, rows, runs = read_runs(folders)
    page = page_data(selection, rows, runs)
    best = (page["verdict"] or {}).get("best")
    by_row = [row.runs for row in sorted(rows, key=lambda row: rows.index(row) != best)]
    details: dict[int, str] = {}
    for place in (place for nth in zip_longest(*by_row) for place in nth if place is not None):
        encoded = encode(read_detail(runs[place].folder))
        if details and sum(map(len, details.values())) + len(encoded) > budget:
            break
        details[place] = encoded
    return page, details


def read_runs(folders: Sequence[Path]) -> tuple[Selection, list[Row], list[PageRun]]:
    """The runs in the folders, and the rows that they make up."""
    selection = select_runs(folders)
    measure = page_measure([run.folder for run in selection.runs])
    if direction(measure) < 0 and not selection.own_targets:
        selection = replace(selection, targets=())
    runs = [_read_run(run.folder, selection, measure) for run in selection.runs]
    return selection, make_rows(selection.runs, [run.config for run in runs]), runs


def page_measure(folders: Sequence[Path]) -> str:
    """The measure of all runs, where they share one; else accuracy, which all have."""
    measures = set()
    for folder in folders:
        with _reading(folder) as ledger:
            measures.add(ledger.measure)
    return measures.pop() if len(measures) == 1 else ACCURACY


def measure_data(measure: str) -> dict[str, Any]:
    """The measure as the page needs it: its name in words, whether lower is better, how numbers are written."""
    shown = {"name": measure, "label": measure_label(measure), "format": "%" if is_share(measure) else ""}
    return shown | {"lower": direction(measure) < 0}


def read_detail(folder: Path) -> dict[str, Any]:
    """Everything that the page shows of one run when a reader selects it."""
    file = folder / DATA
    with _reading(folder) as ledger:
        return run_detail(ledger) | {"data": DataReport.read(file).page() if file.is_file() else None}


def page_data(selection: Selection, rows: Sequence[Row], runs: Sequence[PageRun]) -> dict[str, Any]:
    """What the page shows of all runs."""
    about: dict[str, Any] = {"waiting": selection.waiting, "targets": selection.targets, "shares": selection.shares}
    measure = runs[0].measure
    about |= {"measure": measure_data(measure), "worth": [_table(table) for table in selection.worth]}
    about |= {"tuned": [_table(table) for table in selection.tuned]}
    page = _page(rows, runs)
    attack = _attack([run.config for run in runs])
    verdict = _verdict(rows, runs, page["differs"]["config"], selection.baseline, attack)
    return about | page | {"attack": attack, "verdict": verdict, "criteria": _criteria(runs)}


def _table(table: TextTable) -> dict[str, Any]:
    return {key: getattr(table, key) for key in TABLE}


def _attack(configs: Sequence[Settings]) -> str | None:
    """What the attackers do, where it is the same in all runs.

    >>> _attack([{"task": {"attack": [{"kind": "label-flip", "share": 0.4}]}}])
    '40 % of the clients have flipped labels'
    """
    attacks = [(config.get("task") or {}).get("attack") or [] for config in configs]
    if not attacks[0] or any(attack != attacks[0] for attack in attacks):
        return None
    return " and ".join(
        f"{one['share']:.0%} of the clients ".replace("%", " %")
        + ("have flipped labels" if one["kind"] == "label-flip" else f"attack ({one['kind']})")
        for one in attacks[0]
    )


def _verdict(
    rows: Sequence[Row],
    runs: Sequence[PageRun],
    differ: Sequence[Mapping[str, Any]],
    named: str | None,
    attack: str | None,
) -> dict[str, Any] | None:
    """The rows against the baseline; None where they cannot be paired: other data, rounds or draws of clients."""
    paired = not any(one["key"].startswith(("task.", "run.")) and one["key"] not in UNPAIRED for one in differ)
    recipes = [(runs[row.runs[0]].config.get("recipe") or {}).get("name") for row in rows]
    baseline = find_baseline(rows, recipes, named)
    return headline(rows, [run.result for run in runs], baseline, attack, runs[0].measure) if paired else None


def _criteria(runs: Sequence[PageRun]) -> list[list[str]]:
    """Every criterion of the page: its name, the name spelt out, and what it is; pairs, as a name may be any text."""
    names = dict.fromkeys(name for run in runs for order in run.orders for name in order)
    return [[name, display_name(name), about_criterion(name)] for name in names]


def _page(rows: Sequence[Row], runs: Sequence[PageRun]) -> dict[str, Any]:
    config = [settings_of([toml_lines(runs[place].config) for place in row.runs]) for row in rows]
    environment = [environment_of([runs[place].meta for place in row.runs]) for row in rows]
    row_of = {place: number for number, row in enumerate(rows) for place in row.runs}
    results = [[runs[place].result for place in row.runs] for row in rows]
    seeds, end = shared_end(results)
    return {
        "end": end,
        "rows": [
            {
                "label": row.label,
                "app": runs[row.runs[0]].meta.get(APP),
                "runs": row.runs,
                **_recipe([runs[place] for place in row.runs]),
                **row_data(results[number], seeds, end, runs[0].measure),
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
    """Open a ledger read-only, also during its run; a damaged one raises a FolderError."""
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


def _read_run(folder: Path, selection: Selection, measure: str) -> PageRun:
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
            measure_run(ledger, rounds, selection.targets, selection.shares, measure),
            group_events(events),
        )
        orders = [list(order) for order in dict.fromkeys(tuple(row["priority"]) for row in rounds)]
        searched = any(ledger.candidates(row["round"]) for row in rounds)
        panels = ["search"] * searched + ["groups"] * has_groups(rounds)  # groups may appear late
        panels += ["table"] * (folder / DATA).is_file()
        return PageRun(folder, config, meta, orders, result, panels, measure)


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
    """The name of the recipe and its orders of criteria; a search may use several."""
    recipe = runs[0].config.get("recipe") or {}
    orders = [list(order) for order in dict.fromkeys(tuple(order) for run in runs for order in run.orders)]
    return {"recipe": recipe.get("name"), "priorities": orders or [criteria_of(recipe)]}


def _costs(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Rounds, bytes and seconds; known before the first evaluation."""
    return {
        "played": rounds[-1]["round"] if rounds else 0,
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "seconds": sum(sum(row["seconds"].values()) for row in rounds),
    }
