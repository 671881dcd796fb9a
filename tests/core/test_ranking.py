"""Ranking: only the order of the scores counts; ties share; who earned nothing gets nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import Ranked, WeightedMean, weigh

SCORE = WeightedMean()
values = st.lists(st.integers(0, 20), min_size=1, max_size=12).map(lambda v: np.array(v, dtype=float) / 20)


def ranked(column: object, how: str = "borda", top: float = 0.5) -> list[float]:
    return Ranked(SCORE, how, top)(np.array(column, dtype=float)[:, np.newaxis]).tolist()  # type: ignore[arg-type]


def test_each_kind_by_hand():
    column = [0.2, 0.9, 0.5, 0.9]
    assert ranked(column) == [1, 3.5, 2, 3.5]
    assert ranked(column, "squared") == [1, 12.25, 4, 12.25]
    assert ranked(column, "exponential") == pytest.approx([2**-3, 2**-0.5, 2**-2, 2**-0.5])
    assert ranked(column, "top") == [0, 3.5, 0, 3.5]
    assert ranked([0.1, 0.2, 0.3], "top", 0.34) == [0, 2, 3]
    assert ranked([0.0, 0.0, 0.3]) == [0, 0, 3]


@settings(max_examples=100, deadline=None)
@given(column=values, how=st.sampled_from(["borda", "squared", "exponential", "top"]), power=st.floats(0.2, 4))
def test_monotone_changes_of_the_score_change_nothing(column: np.ndarray, how: str, power: float):
    assert ranked(column**power, how) == ranked(column, how)
    assert ranked(column / 2, how) == ranked(column, how)


@settings(max_examples=100, deadline=None)
@given(column=values, how=st.sampled_from(["borda", "squared", "exponential", "top"]))
def test_better_never_gets_less(column: np.ndarray, how: str):
    worth = np.array(ranked(column, how))
    order = np.argsort(column, kind="stable")
    assert (np.diff(worth[order]) >= 0).all()
    assert (worth[column == 0] == 0).all()
    for value in np.unique(column):
        assert len(set(worth[column == value])) == 1, "ties share"


def test_weights_by_hand():
    """rs / sum of rs [FedVal, eq. 2]; 3 clients, gamma 3 : 1."""
    table = np.array([[0.8, 0.4], [0.6, 0.9], [0.9, 0.9]])
    scores = 0.75 * table[:, 0] + 0.25 * table[:, 1]
    plain = weigh(table, ["a", "b"], WeightedMean((0.75, 0.25)), "none")
    assert plain.weights == pytest.approx(scores / scores.sum())
    assert plain.weights == pytest.approx([0.7 / 2.275, 0.675 / 2.275, 0.9 / 2.275])
    assert weigh(table, ["a", "b"], Ranked(WeightedMean((0.75, 0.25))), "none").weights == pytest.approx(
        [2 / 6, 1 / 6, 3 / 6]
    )
