"""Tables as rows for a learner: numbers on one scale, words as indicators, sensitive attributes as small codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.errors import DataError

Column = Sequence[str]
AGES = (25, 46)
"""Age groups: below 25, 25 to 45, above."""


def encode(
    columns: Mapping[str, Column], numbers: Sequence[str], words: Sequence[str], fitted: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Numbers standardised by the `fitted` rows, then an indicator per word that occurs, in alphabetical order."""
    parts = [_standard(np.array(columns[name], dtype=np.float64), fitted) for name in numbers]
    for name in words:
        kinds = sorted(set(columns[name]))
        values = np.array(columns[name])
        parts += [(values == kind).astype(np.float64) for kind in kinds]
    return np.column_stack(parts).astype(np.float32)


def check_width(rows: NDArray[np.float32], features: int) -> NDArray[np.float32]:
    """The rows, if they have as many columns as the task's models take."""
    if rows.shape[1] != features:
        raise DataError(
            f"the table has {rows.shape[1]} columns with its words spelled out, the task's models take {features}: "
            "some words are missing or new; use the whole table as published"
        )
    return rows


def fixed_split(rows: int, share: float) -> NDArray[np.bool_]:
    """Which rows are for training: that share of them, the same in every run."""
    chosen = np.zeros(rows, dtype=np.bool_)
    chosen[generator(0, "table split").permutation(rows)[: round(share * rows)]] = True
    return chosen


def codes(column: Column, order: Sequence[str] = ()) -> NDArray[np.uint8]:
    """Each word's place in the order, by default that of the alphabet."""
    places = {word: place for place, word in enumerate(order or sorted(set(column)))}
    return np.array([places[word] for word in column], dtype=np.uint8)


def age_groups(ages: Column) -> NDArray[np.uint8]:
    """0 below 25, 1 up to 45, 2 above."""
    return np.searchsorted(AGES, np.array(ages, dtype=np.float64), side="right").astype(np.uint8)


def _standard(values: NDArray[np.float64], fitted: NDArray[np.bool_]) -> NDArray[np.float64]:
    mean, deviation = values[fitted].mean(), values[fitted].std()
    return np.asarray((values - mean) / (deviation or 1.0))
