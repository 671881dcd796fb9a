"""What federation is worth: a study's baseline against each client alone and against all rows in one place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedmerit.core.objectives import direction, measure_label
from fedmerit.store.frames import Frame, Line, make_frame
from fedmerit.study.plan import REFERENCES, Plan
from fedmerit.study.statistics import LEVEL, paired
from fedmerit.study.text_table import TextTable, number_text

if TYPE_CHECKING:
    from fedmerit.study.study import Study

ALL = "all clients"
MOST = 200
"""Clients above which only the mean over all is compared."""
COLUMNS = ("client", "against", "seeds", "value", "reference", "difference", "low", "high")


def worth_frame(study: Study) -> Frame:
    """Make `Study.worth`: a line per reference row and client, first all clients: both means, their paired difference.

    The difference is baseline - reference over the seeds that both have finished, with its interval.
    """
    names = compared_rows(study.plan)
    if names is None:
        return make_frame((), COLUMNS)
    base, references = names
    finished = study.metrics[study.metrics["finished"]]
    overall = {(row, seed): float(value) for row, seed, value in finished[["row", "seed", study.measure]].to_numpy()}
    local = {key: of_run for key, of_run in study.local.items() if key in overall}
    clients = dict.fromkeys(client for of_run in local.values() for client in of_run)
    values = {ALL: overall}
    if len(clients) <= MOST:
        values |= {name: {key: run.get(name, math.nan) for key, run in local.items()} for name in clients}
    return make_frame(
        [
            {"client": client, "against": reference} | _difference(by_run, base, reference, study.plan.seeds)
            for reference in references
            for client, by_run in values.items()
        ],
        COLUMNS,
    )


def compared_rows(plan: Plan) -> tuple[str, list[str]] | None:
    """The row to judge, the baseline unless that is a reference itself, and the reference rows; None without both."""
    kinds = {row.name: plan.config(row, plan.seeds[0]).recipe.name for row in plan.rows if not row.task.get("attack")}
    references = [row for recipe in REFERENCES.values() for row, kind in kinds.items() if kind == recipe]
    others = [row for row in (plan.against, *kinds) if row in kinds and row not in references]
    return (others[0], references) if others and references else None


def _difference(by_run: Mapping[tuple[str, int], float], base: str, reference: str, seeds: tuple[int, ...]) -> Line:
    first, second = (np.array([by_run.get((row, seed), math.nan) for seed in seeds]) for row in (base, reference))
    both, test = ~np.isnan(first - second), paired(first - second)
    value, other = (float(one[both].mean()) if both.any() else math.nan for one in (first, second))
    effect = {"difference": test.difference, "low": test.low, "high": test.high}
    return {"seeds": test.seeds, "value": value, "reference": other, **effect}


def worth_tables(study: Study) -> Iterator[TextTable]:
    """Make the table of `Study.worth`: a line per client, a column per reference row; none without reference rows."""
    names = compared_rows(study.plan)
    if names is None or not len(study.worth):
        return
    base, references = names
    frame, sign = study.worth, direction(study.measure)
    lines = {(line["client"], line["against"]): line for line in frame.to_dict("records")}
    clients = list(dict.fromkeys(frame["client"]))
    gains = {client: -sign * lines[client, references[0]]["difference"] for client in clients[1:]}
    first = sorted(gains, key=lambda client: (math.isnan(gains[client]), gains[client]))  # unknown last
    rows = []
    for client in (ALL, *first):
        of_client = [lines[client, reference] for reference in references]
        cells = [cell for line in of_client for cell in (number_text(line["reference"], 3), _gain(line))]
        rows.append((client, number_text(of_client[0]["value"], 3), *cells))
    label = measure_label(study.measure)
    header = ("client", base, *(cell for name in references for cell in (name, f"{base} - {name}")))
    better = "above 0" if sign > 0 else "below 0"
    below = [f"in brackets the {LEVEL:.0%} interval over seeds; {better} {base} is better; * the interval excludes 0"]
    below += [_count(lines, base, reference, first, sign) for reference in references if first]
    known = sum(not math.isnan(lines[client, references[0]]["value"]) for client in first)
    below += [f"{label} is defined at {known} of {len(first)} clients"] if known < len(first) else []
    yield TextTable(f"{study.plan.name}: what federation is worth, by {label}", header, tuple(rows), tuple(below))


def _gain(line: Line) -> str:
    """The difference with its interval, and a star if that excludes 0."""
    if math.isnan(line["low"]):
        return number_text(line["difference"], 3, "+")
    low, high = (number_text(line[end], 3, "+") for end in ("low", "high"))
    return f"{number_text(line['difference'], 3, '+')} [{low}, {high}]{'*' * _clear(line)}"


def _clear(line: Line) -> bool:
    return bool(line["low"] > 0 or line["high"] < 0)


def _count(lines: Mapping[tuple[str, str], Line], base: str, reference: str, clients: list[str], sign: int) -> str:
    """For how many clients the baseline is clearly better and clearly worse than a reference."""
    clear = [lines[client, reference] for client in clients if _clear(lines[client, reference])]
    better = sum(sign * line["difference"] > 0 for line in clear)
    return f"{base} is better than {reference} for {better} of {len(clients)} clients, worse for {len(clear) - better}"
