"""Packing: the rounds' facts, criteria, scores and weights as columns with as few digits as keep every rank."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fedmerit.core.groups import FARTHEST
from fedmerit.core.recipe_json import part_from_json
from fedmerit.core.weights import ClientWeight
from fedmerit.errors import DataError

Number: TypeAlias = int | float | None
Numbers: TypeAlias = list[Number] | Number
"""A number per client, or one number where all are the same."""

WEIGHT_DIGITS, VALUE_DIGITS, MOST_DIGITS = 4, 6, 9
"""Significant digits; values that still look equal with the most digits count as equal."""
NEAR = 1e-5
"""Two values with a smaller relative difference look the same with the digits that are shown."""


def pack_rounds(rounds: Sequence[Mapping[str, Any]], weights: Sequence[Sequence[ClientWeight]]) -> dict[str, Any]:
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


def _pack_round(priority: Sequence[str], rows: Sequence[ClientWeight]) -> dict[str, Any]:
    """One round; its rows are in client order."""
    names = dict.fromkeys(name for row in rows for name in row.facts)
    facts = {name: pack([row.facts.get(name) for row in rows], VALUE_DIGITS) for name in names}
    criteria = {name: _criterion(name, rows, facts) for name in priority} if rows else {}
    ids, score = [row.id for row in rows], pack([row.score for row in rows], VALUE_DIGITS)
    totals = {row.group: 0.0 for row in sorted(rows, key=lambda row: row.group)}
    for row in rows:
        totals[row.group] += row.score
    return {
        "ids": len(ids) if ids == list(range(len(ids))) else ids,
        "group": pack([row.group for row in rows], VALUE_DIGITS),
        "weight": _multiple(score, [row.weight for row in rows]) if rows else [],
        "score": score,
        "uncapped": _uncapped(rows),
        "total": [shorten(total, VALUE_DIGITS) for total in totals.values()],
        "facts": facts,
        "raw": {name: raw for name, (raw, _) in criteria.items()},
        "norm": {name: norm for name, (_, norm) in criteria.items()},
    }


def _uncapped(rows: Sequence[ClientWeight]) -> Numbers:
    """The weights before the cap; None where it cut none."""
    cut = any(row.earned != row.weight for row in rows)
    return pack([row.earned for row in rows], WEIGHT_DIGITS) if cut else None


def _by_name(rounds: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Each name with its column of every round (None: not in that round); pairs, because a name may be any text."""
    names = dict.fromkeys(name for columns in rounds for name in columns)
    return [[name, [columns.get(name) for columns in rounds]] for name in names]


def pack(values: Sequence[float | None], digits: int) -> Numbers:
    """The values with `digits` significant digits, with more where two different values would look the same."""
    distinct = len(set(values))
    if distinct == 1 and len(values) > 1:
        return shorten(values[0], digits)
    short = [shorten(value, digits) for value in values]
    while len(set(short)) < distinct and digits < MOST_DIGITS:
        digits += 1
        short = [shorten(value, digits) for value in values]
    return short[0] if len(short) > 1 and len(set(short)) == 1 else short


def shorten(value: float | None, digits: int) -> Number:
    """A number with few digits, an integer where possible; None for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _criterion(name: str, rows: Sequence[ClientWeight], facts: Mapping[str, Numbers]) -> tuple[Any, Any]:
    """Raw and normalised values; where the raw values equal a fact, the fact's name replaces them."""
    raw = pack([row.criteria[name] for row in rows], VALUE_DIGITS)
    norm = _multiple(raw, [row.normalised[name] for row in rows])
    same = (fact for fact, column in facts.items() if isinstance(column, list) and column == raw)
    return next(same, raw), norm


def _multiple(column: Numbers, values: Sequence[float]) -> Numbers | dict[str, float]:
    """The values as a column, or as the one factor by which another column gives them.

    Normalising multiplies a criterion by one factor for all clients, and weights are scores times one factor.
    """
    if isinstance(column, list) and (top := max(value or 0 for value in column)):
        factor = max(values) / top
        pairs = zip(column, values, strict=True)
        if all(abs((value or 0) * factor - exact) <= NEAR * abs(exact) for value, exact in pairs):
            return {"times": factor}
    return pack(values, WEIGHT_DIGITS)
