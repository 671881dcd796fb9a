"""Columns of a report: a round's facts, criteria, scores and weights in as few digits as keep every rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fedmerit.weights import Earned

Number: TypeAlias = int | float | None
Numbers: TypeAlias = list[Number] | Number
"""A number per client, or one number where all are the same."""

WEIGHT_DIGITS, VALUE_DIGITS, MOST_DIGITS = 4, 5, 9
"""Significant digits; past the most, two values that differ are taken for the same."""


def pack_round(number: int, priority: Sequence[str], rows: Sequence[Earned]) -> dict[str, Any]:
    """One round, column by column; rows in client order, criteria in priority order."""
    names = list(dict.fromkeys(name for row in rows for name in row.facts))
    facts = {name: pack([row.facts.get(name) for row in rows], VALUE_DIGITS) for name in names}
    criteria = [_criterion(name, rows, facts) for name in priority] if rows else []
    return {
        "round": number,
        "priority": list(priority),
        "ids": [row.id for row in rows],
        "weight": pack([row.weight for row in rows], WEIGHT_DIGITS),
        "score": pack([row.score for row in rows], VALUE_DIGITS),
        "total": shorten(sum(row.score for row in rows), VALUE_DIGITS),
        "facts": [[name, column] for name, column in facts.items()],
        "raw": [raw for raw, _ in criteria],
        "norm": [norm for _, norm in criteria],
    }


def pack(values: Sequence[float | None], digits: int) -> Numbers:
    """The values with `digits` significant digits, with more where two different values would look the same."""
    distinct, short = len(set(values)), [shorten(value, digits) for value in values]
    while len(set(short)) < distinct and digits < MOST_DIGITS:
        digits += 1
        short = [shorten(value, digits) for value in values]
    return short[0] if len(short) > 1 and len(set(short)) == 1 else short


def shorten(value: float | None, digits: int) -> Number:
    """A number with few digits, whole where it can be; None for what JSON cannot say."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _criterion(name: str, rows: Sequence[Earned], facts: Mapping[str, Numbers]) -> tuple[Any, Any]:
    """Raw and normalised values; the name of a fact for raw values that are that fact."""
    raw = pack([row.criteria[name] for row in rows], VALUE_DIGITS)
    norm = _multiple(raw, [row.normalised[name] for row in rows])
    same = (fact for fact, column in facts.items() if isinstance(column, list) and column == raw)
    return next(same, raw), norm


def _multiple(raw: Numbers, values: Sequence[float]) -> Numbers | dict[str, float]:
    """Normalising multiplies a column by one number: that number is enough where it gives back every value as shown."""
    short = [shorten(value, WEIGHT_DIGITS) for value in values]
    if not isinstance(raw, list) or not (top := max(value or 0 for value in raw)):
        return pack(values, WEIGHT_DIGITS)
    times = max(values) / top
    again = [shorten((value or 0) * times, WEIGHT_DIGITS) for value in raw]
    return {"times": times} if again == short else short
