"""Votes: one judge, whatever it says, moves a decision by its vote and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.votes import count_change, vote_weights

SIZES = st.lists(st.integers(1, 10**12), min_size=2, max_size=12).map(np.array)
CAPS = st.floats(1, 3)
ANYTHING = st.floats(allow_nan=True, allow_infinity=True)
EPS = 1e-9


@given(SIZES, CAPS)
def test_no_judge_has_more_than_its_cap(sizes: np.ndarray, cap: float):
    votes = vote_weights(sizes, cap)
    assert votes.sum() == pytest.approx(1)
    assert votes.max() <= min(1, cap / len(sizes)) + EPS


@given(st.integers(3, 10), ANYTHING, ANYTHING)
def test_one_judge_cannot_turn_the_change_that_all_others_see(judges: int, lie: float, other: float):
    losses, reference = np.full(judges, 0.9), np.full(judges, 1.0)
    losses[0], reference[0] = lie, other
    votes = np.full(judges, 1 / judges)
    change = count_change(losses, reference, votes, k=1)
    assert change <= -0.1 * (judges - 2) / judges + EPS


def test_nobody_answered():
    assert vote_weights(np.zeros(2)).tolist() == [0, 0]
    assert count_change(np.zeros(2), np.ones(2), np.zeros(2)) == 0
