"""Packing: the rounds' facts, criteria, scores and weights as columns with as few digits as keep every rank."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.models.grouping import FARTHEST
from fedmerit.core.recipe_json import part_from_json
from fedmerit.core.types import Vector
from fedmerit.errors import DataError
from fedmerit.store.ledger import WeightColumns

Number: TypeAlias = int | float | None
Numbers: TypeAlias = list[Number] | Number
"""A number per client, or one number where all are the same."""

WEIGHT_DIGITS, VALUE_DIGITS, MOST_DIGITS = 4, 6, 9
"""Significant digits; values that still look equal with the most digits count as equal."""
LARGEST_WHOLE = 1e15
NEAR = 1e-5
"""Two values with a smaller relative difference look the same with the digits that are shown."""


def pack_rounds(rounds: Sequence[Mapping[str, Any]], weights: Sequence[WeightColumns]) -> dict[str, Any]:
    """All rounds, column by column: values that are alike from round to round then compress well."""
    packed = [_pack_round(row["priority"], rows) for row, rows in zip(rounds, weights, strict=True)]
    scores = {text: place for place, text in enumerate(dict.fromkeys(row["score"] for row in rounds if row["score"]))}
    plain = ("ids", "group", "weight", "score", "total", "uncapped")
    return {
        **{key: [row[key] for row in rounds] for key in ("round", "priority", "groups")},
        "scores": [_score_settings(text) for text in scores],
        "scored": [scores.get(row["score"]) for row in rounds],
        "normalise": [row["normalise"] for row in rounds],
        "cut": [shorten(row["cut"] if (row["cut"] or 0) <= FARTHEST else None, VALUE_DIGITS) for row in rounds],
        **{key: [columns[key] for columns in packed] for key in plain},
        **{key: _by_name([columns[key] for columns in packed]) for key in ("facts", "raw", "norm")},
    }


def _score_settings(text: str) -> Any:
    """A score's class and settings, from which the page explains it; None for one that is not ours."""
    try:
        part_from_json(text)
    except DataError:
        return None
    return json.loads(text)


def _pack_round(priority: Sequence[str], rows: WeightColumns) -> dict[str, Any]:
    """One round; its rows are in client order."""
    facts = {name: pack(values, VALUE_DIGITS) for name, values in rows.facts.items()}
    criteria = {name: _criterion(name, rows, facts) for name in priority} if rows.ids else {}
    score, sums = pack(rows.scores, VALUE_DIGITS), np.bincount(rows.groups, rows.scores)
    return {
        "ids": len(rows.ids) if rows.ids == tuple(range(len(rows.ids))) else rows.ids,
        "group": pack(rows.groups.astype(np.float64), VALUE_DIGITS),
        "weight": _multiple(score, rows.weights) if rows.ids else [],
        "score": score,
        "uncapped": pack(rows.earned, WEIGHT_DIGITS) if (rows.earned != rows.weights).any() else None,
        "total": [shorten(float(sums[group]), VALUE_DIGITS) for group in np.unique(rows.groups)],
        "facts": facts,
        "raw": {name: raw for name, (raw, _) in criteria.items()},
        "norm": {name: norm for name, (_, norm) in criteria.items()},
    }


def _by_name(rounds: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Each name with its column of every round (None: not in that round); pairs, because a name may be any text."""
    names = dict.fromkeys(name for columns in rounds for name in columns)
    return [[name, [columns.get(name) for columns in rounds]] for name in names]


def pack(values: Sequence[float | None] | Vector, digits: int) -> Numbers:
    """The values with `digits` significant digits, with more where two different values would look the same."""
    numbers = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    distinct, places = np.unique(numbers, return_inverse=True)  # most columns repeat few values
    short = [shorten(value, digits) for value in distinct.tolist()]
    while len(set(short)) < len(distinct) and digits < MOST_DIGITS:
        digits += 1
        short = [shorten(value, digits) for value in distinct.tolist()]
    if len(numbers) > 1 and len(set(short)) == 1:
        return short[0]
    return [short[place] for place in places.tolist()]


def shorten(value: float | None, digits: int) -> Number:
    """A number with few digits, an integer where possible; None for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < LARGEST_WHOLE else short


def _criterion(name: str, rows: WeightColumns, facts: Mapping[str, Numbers]) -> tuple[Any, Any]:
    """Raw and normalised values; where the raw values equal a fact, the fact's name replaces them."""
    raw = pack(rows.criteria[name], VALUE_DIGITS)
    norm = _multiple(raw, rows.normalised[name])
    same = (fact for fact, column in facts.items() if isinstance(column, list) and column == raw)
    return next(same, raw), norm


def _multiple(column: Numbers, values: Vector) -> Numbers | dict[str, float]:
    """The values as a column, or as the one factor by which another column gives them.

    Normalising multiplies a criterion by one factor for all clients, and weights are scores times one factor.
    """
    known = np.nan_to_num(np.array(column, dtype=np.float64)) if isinstance(column, list) else np.zeros(1)
    if top := float(known.max()):
        factor = float(values.max()) / top
        if (np.abs(known * factor - values) <= NEAR * np.abs(values)).all():
            return {"times": factor}
    return pack(values, WEIGHT_DIGITS)
