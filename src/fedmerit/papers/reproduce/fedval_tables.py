"""FedVal's tables from studies: accuracy, group differences on the test rows, weight of the poisoned clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.engine.run import Run
from fedmerit.papers.reproduce.bars import draw_bars
from fedmerit.papers.reproduce.cells import LEGEND, difference_cell, mean_cell
from fedmerit.papers.reproduce.entry import Setting, Studies, Told
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task

MEASURES = ("accuracy", "parity difference", "opportunity difference", "weight of the poisoned")
PUBLISHED = "published: figures without numbers; nothing stands beside"
MEANING = (
    "measured on all test rows, which neither clients nor server use; parity difference: of the shares of "
    "women and men that are predicted to earn more; opportunity difference: the same among those who do"
)
Found: TypeAlias = Mapping[str, Mapping[str, Vector]]
"""Of each row and measure, a value per seed."""


def tell(setting: Setting, studies: Studies) -> Told:
    """Two tables per part: the measures, and what they differ by from FedAvg; a picture of all parts."""
    tables: list[TextTable] = []
    bars: dict[str, list[Vector]] = {}
    for part, study in studies.items():
        found = measure(study)
        tables += [_values(part, study, found), _differences(part, study, found)]
        bars |= {" ".join(filter(None, (part, row))): list(values.values()) for row, values in found.items()}
    pictured = {name: [1 - bar[0], bar[1], bar[2]] for name, bar in bars.items()}
    names = ("error", *MEASURES[1:3])
    return Told(tuple(tables), {"bars": draw_bars(names, pictured)}, (LEGEND, MEANING, PUBLISHED))


def measure(study: Study) -> Found:
    """All measures of the finished runs; the data of a seed is loaded once."""
    found = {row: {name: np.full(len(study.plan.seeds), np.nan) for name in MEASURES} for row in study.rows}
    for place, seed in enumerate(study.plan.seeds):
        config = next(one.config for one in study.runs if one.seed == seed)
        task = make_task(config)
        for one in study.runs:
            if one.seed == seed and str(one) not in study.unfinished:
                run = study.run(one.row, seed)
                predicted = task.learner.predict(run.model, task.federation.test.x)
                values = _gaps(task.federation.test, predicted) | {MEASURES[3]: _weight(run)}
                for name, value in values.items():
                    found[one.row][name][place] = value
    return found


def _gaps(test: Split, predicted: Any) -> dict[str, float]:
    women, positive, earns = test.attributes["sex"] == 0, predicted == 1, test.y == 1
    return {
        MEASURES[0]: float((predicted == test.y).mean()),
        MEASURES[1]: float(abs(positive[women].mean() - positive[~women].mean())),
        MEASURES[2]: float(abs(positive[women & earns].mean() - positive[~women & earns].mean())),
    }


def _weight(run: Run) -> float:
    """The weight of all poisoned clients together, as a mean over the rounds; NaN where there are none."""
    bad = {client for client, name in enumerate(run.ledger.names()) if "poisoned" in name}
    rounds = range(1, run.ledger.last_round() + 1)
    return (
        float(np.mean([sum(one.weight for one in run.explain(r) if one.id in bad) for r in rounds])) if bad else np.nan
    )


def _values(part: str, study: Study, found: Found) -> TextTable:
    rows = tuple((row, *(mean_cell(values, 3) for values in found[row].values())) for row in study.rows)
    return TextTable(_title(part, "Measured"), ("row", *MEASURES), rows)


def _differences(part: str, study: Study, found: Found) -> TextTable:
    base = found[study.plan.against]
    rows = tuple(_changes(row, found[row], base) for row in study.rows if row != study.plan.against)
    return TextTable(_title(part, f"Differences to {study.plan.against}, paired by seed"), ("row", *MEASURES), rows)


def _changes(row: str, mine: Mapping[str, Vector], base: Mapping[str, Vector]) -> tuple[str, ...]:
    return row, *(difference_cell(values - base[name], 3) for name, values in mine.items())


def _title(part: str, what: str) -> str:
    return f"{what} ({part.replace('-', ' ')} %)" if part else what
