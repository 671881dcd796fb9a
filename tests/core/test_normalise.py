"""Normalising: columns by their sum, their maximum or their range, and by public bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.criteria.table import CB, DS, LD
from fedmerit.core.recipe import Recipe
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import Normalise, normalised, scale, weigh
from fedmerit.errors import ConfigError

RAW = np.array([[1.0, 0.0, 4.0], [3.0, 0.0, 4.0]])
NAMES = ["DS", "LD", "CB"]
TABLES = arrays(np.float64, st.tuples(st.integers(2, 8), st.just(3)), elements=st.floats(0, 1000))


@pytest.mark.parametrize(
    ("how", "table"),
    [
        ("sum", [[0.25, 0.5, 0.5], [0.75, 0.5, 0.5]]),
        ("max", [[1 / 3, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ("minmax", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ("none", [[1.0, 0.0, 4.0], [3.0, 0.0, 4.0]]),
        (scale({"DS": 2, "CB": 16}), [[0.5, 0.0, 0.25], [1.0, 0.0, 0.25]]),
    ],
)
def test_columns_on_one_scale(how: Normalise, table: list[list[float]]):
    assert normalised(RAW, how, NAMES) == pytest.approx(np.array(table))


def test_small_spans_are_spans():
    assert normalised(np.array([[0.0], [0.5]]), "minmax").tolist() == [[0.0], [1.0]]
    assert normalised(np.array([[0.25], [0.5]]), "max").tolist() == [[0.5], [1.0]]


def test_values_above_their_bound_count_as_the_bound_and_are_noted():
    raw = np.array([[100.0, 5.0], [900.0, 20.0], [500.0, 5.0]])
    earned = weigh(raw, ["DS", "LD"], Prioritized(), scale({"DS": 500, "LD": 20}))
    assert earned.table.tolist() == [[0.2, 0.25], [1.0, 1.0], [1.0, 0.25]]
    assert earned.scores.tolist() == pytest.approx([0.2 + 0.2 * 0.25, 2.0, 1.25])
    (note,) = [note for note in earned.notes if note.kind == "scaled"]
    assert note.text == "1 of 3 values of DS are above its scale 500 and count as 500; the largest is 900"


@given(TABLES, TABLES)
def test_with_bounds_nothing_that_another_client_sends_changes_a_score(mine: np.ndarray, others: np.ndarray):
    bounds = scale({"DS": 500, "LD": 10})
    alone = weigh(mine[:1], NAMES, Prioritized(), bounds)
    together = weigh(np.concatenate([mine[:1], others]), NAMES, Prioritized(), bounds)
    assert together.scores[0] == alone.scores[0]


def test_degrees_need_no_bound_and_others_do():
    Recipe((CB, DS), normalise=scale({"DS": 500}))
    with pytest.raises(ConfigError, match=r"normalise = scale needs a bound of LD; set .* bounds = \{LD = 500\}"):
        Recipe((DS, LD), normalise=scale({"DS": 500}))


@pytest.mark.parametrize("bounds", [{"DS": 0.0}, {"DS": float("inf")}, {"DS": float("nan")}, {"DS": 5.0, "LD": 2.0}])
def test_wrong_bounds_are_refused(bounds: dict[str, float]):
    with pytest.raises(ConfigError, match="scale"):
        Recipe((DS,), normalise=scale(bounds))
