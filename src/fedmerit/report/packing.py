"""Packing: the rounds' facts, criteria, scores and weights as columns with as few digits as keep every rank."""

from __future__ import annotations

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
TENS = np.array([float(10**power) for power in range(23)])
"""The powers of ten that a float holds exactly."""
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
    if not isinstance(values, np.ndarray) or not np.isfinite(values).all():
        known = [None if value is None or math.isnan(value) else float(value) for value in values]
        return _pack_some(known, digits)
    distinct = len(np.unique(values))
    if distinct == 1 and len(values) > 1:
        return shorten(float(values[0]), digits)
    short = shorten_all(values, digits)
    while (left := len(np.unique(short))) < distinct and digits < MOST_DIGITS:
        digits += 1
        short = shorten_all(values, digits)
    return shorten(float(short[0]), digits) if len(short) > 1 and left == 1 else _whole_where_possible(short)


def _pack_some(values: Sequence[float | None], digits: int) -> Numbers:
    """`pack` where values may be unknown."""
    distinct = len(set(values))
    if distinct == 1 and len(values) > 1:
        return shorten(values[0], digits)
    short = [shorten(value, digits) for value in values]
    while len(set(short)) < distinct and digits < MOST_DIGITS:
        digits += 1
        short = [shorten(value, digits) for value in values]
    return short[0] if len(short) > 1 and len(set(short)) == 1 else short


def shorten_all(values: Vector, digits: int) -> Vector:
    """Finite numbers with few digits, each the float that reading its short decimals gives.

    With n = value * 10^k rounded to a whole number of `digits` digits, n / 10^k is rounded once, as reading decimals
    is. Where n is within rounding of a tie, or 10^k is no float, the number is written and read.

    >>> shorten_all(np.array([1234.5678, 0.00012345678]), 4).tolist()
    [1235.0, 0.0001235]
    """
    size = np.where(values == 0, 1.0, np.abs(values))
    places = digits - 1 - np.floor(np.log10(size)).astype(np.int64)
    power = TENS[np.minimum(np.abs(places), len(TENS) - 1)]
    with np.errstate(over="ignore"):  # of the branch that is not taken
        scaled = np.where(places >= 0, values * power, values / power)
        whole = np.rint(scaled)
        short = np.where(places >= 0, whole / power, whole * power)
    tie = np.abs(np.abs(scaled - whole) - 0.5) < 1e-5
    other_size = (np.abs(whole) < TENS[digits - 1]) & (values != 0) | (np.abs(whole) > TENS[digits])
    for place in np.flatnonzero(tie | other_size | (np.abs(places) >= len(TENS))):
        short[place] = float(f"{values[place]:.{digits}g}")
    return np.asarray(short)


def _whole_where_possible(values: Vector) -> list[Number]:
    whole = (values == np.floor(values)) & (np.abs(values) < LARGEST_WHOLE)
    if not whole.any() or whole.all():
        listed: list[Number] = values.astype(np.int64 if whole.any() else np.float64).tolist()
        return listed
    return [int(value) if is_whole else value for value, is_whole in zip(values.tolist(), whole.tolist(), strict=True)]


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
