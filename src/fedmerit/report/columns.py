"""Columns of a report: a round's facts, criteria, scores and weights in as few digits as keep every rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from fedmerit.weights import Earned

Number: TypeAlias = int | float | None
Column: TypeAlias = list[Number] | Number | str
"""A number per client; one number where all are the same; the name of a fact where it is that fact."""

WEIGHT_DIGITS, VALUE_DIGITS, MOST_DIGITS = 4, 5, 9
"""Significant digits; past the most, two values that differ are taken for the same."""


def pack_round(number: int, priority: Sequence[str], rows: Sequence[Earned]) -> dict[str, Any]:
    """One round, column by column; rows in client order, criteria in priority order."""
    names = list(dict.fromkeys(name for row in rows for name in row.facts))
    facts = {name: pack([row.facts.get(name) for row in rows], VALUE_DIGITS) for name in names}
    raw = [pack([row.criteria[name] for row in rows], VALUE_DIGITS) for name in priority] if rows else []
    return {
        "round": number,
        "priority": list(priority),
        "ids": [row.id for row in rows],
        "weight": pack([row.weight for row in rows], WEIGHT_DIGITS),
        "score": pack([row.score for row in rows], VALUE_DIGITS),
        "total": shorten(sum(row.score for row in rows), VALUE_DIGITS),
        "facts": [[name, column] for name, column in facts.items()],
        "raw": [_fact_or(column, facts) for column in raw],
        "norm": [pack([row.normalised[name] for row in rows], WEIGHT_DIGITS) for name in priority] if rows else [],
    }


def pack(values: Sequence[float | None], digits: int) -> list[Number] | Number:
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


def _fact_or(column: list[Number] | Number, facts: dict[str, list[Number] | Number]) -> Column:
    """Most criteria pass on a fact as it is: name the fact rather than repeat its numbers."""
    same = (name for name, fact in facts.items() if isinstance(fact, list) and fact == column)
    return next(same, column)
