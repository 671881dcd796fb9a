"""Tuning in a report: what each row was chosen from, on which seeds, and how its points came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmerit.report.packing import shorten
from fedmerit.study.grid import value_text
from fedmerit.study.plan import Plan
from fedmerit.study.study_folder import tuning_folder
from fedmerit.study.tune import CHOSEN, Tuned, read_tuned
from fedmerit.study.tuning_tables import edge_notes, notes

DIGITS = 6


@dataclass(frozen=True, slots=True)
class TunedRows:
    """The tunings of one folder by row, the rows that were not tuned, and the seeds that it reports on."""

    tunings: Mapping[str, Tuned]
    untuned: Sequence[str] = ()
    reported: Sequence[int] = ()


def tuned_rows(plan: Plan, folder: Path) -> TunedRows:
    """The tunings of a study's rows."""
    tunings = {row.name: read_tuned(plan.tuning(row), tuning_folder(folder, row)) for row in plan.tuned}
    return TunedRows(tunings, [row.name for row in plan.rows if row.tune is None], plan.seeds)


def tuning_data(folders: Sequence[TunedRows]) -> list[dict[str, Any]]:
    """What the page shows of the tunings of all folders, as plain values; a folder without any is left away."""
    return [
        {
            "reported": list(folder.reported),
            "untuned": list(folder.untuned),
            "rows": [_row_data(row, tuned) for row, tuned in folder.tunings.items()],
        }
        for folder in folders
        if folder.tunings
    ]


def _row_data(row: str, tuned: Tuned) -> dict[str, Any]:
    tuning, best = tuned.tuning, tuned.best
    return {
        "row": row,
        "by": tuning.measure,
        "about": tuning.about,
        "seeds": list(tuning.seeds),
        "keys": [
            {
                "key": key,
                "grid": [value_text(value) for value in values],
                "chosen": None if best is None else value_text(best[key]),
                "edge": tuned.edges.get(key),
            }
            for key, values in tuning.grid.items()
        ],
        "edges": list(edge_notes(tuned)),
        "notes": [note for note in notes(tuned) if note not in list(edge_notes(tuned))],
        "points": [_point_data(line) for line in tuned.points.to_dict("records")],
    }


def _point_data(line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: _known(line[key]) for key in ("mean", "difference", "low", "high")}
    effect = numbers if line["verdict"] != CHOSEN else {"mean": numbers["mean"]}
    about = {"point": line["point"], "seeds": line["seeds"], "verdict": line["verdict"]}
    return about | {"censored": line["censored"] > 0} | effect


def _known(value: float) -> float | None:
    return None if math.isnan(value) else shorten(value, DIGITS)
