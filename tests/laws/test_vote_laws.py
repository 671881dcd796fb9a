"""Votes: one judge, whatever it says, moves a decision by its vote and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.search.votes import count_change, preferring, vote_weights
from fedmerit.core.stages.claims import bound_sizes
from fedmerit.core.types import Evaluation

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


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=12), st.floats(1, 5), st.data())
def test_rows_of_judges_are_within_medians_and_their_answers_keep_their_shares(sizes: list[int], k: float, data):
    correct = [data.draw(st.integers(0, size)) for size in sizes]
    told = Evaluation(np.array(correct), np.array(sizes), np.array(correct, np.float64))
    counted = bound_sizes(told, k)
    answered = [size for size in sizes if size]
    if answered:
        assert counted.sizes.max() <= max(k * np.median(answered), 1)
    assert ((counted.correct >= 0) & (counted.correct <= counted.sizes)).all()
    assert (counted.sizes[told.sizes > 0] > 0).all()
    small = np.array([10, 12, 30])
    honest = Evaluation(small // 2, small)
    assert bound_sizes(honest, 3) is honest, "ordinary sizes count as told, to the bit"


def test_a_judge_with_very_many_rows_no_longer_decides_alone():
    told = Evaluation(np.array([2, 3, 10**15]), np.array([10, 10, 10**15]))
    assert told.accuracy > 0.99
    assert bound_sizes(told, 3).accuracy == pytest.approx((2 + 3 + 30) / 50)


def test_preferring_counts_voices():
    assert preferring(np.array([1.0, 1e300, np.nan, 0.0]), np.zeros(4)) == 0.5
    assert preferring(np.zeros(0), np.zeros(0)) == 0


def test_votes_by_hand():
    assert vote_weights(np.array([3.0, 1.0, 0.0, np.inf, np.nan]), cap=2).tolist() == [0.75, 0.25, 0, 0, 0]
    assert vote_weights(np.array([1.0, 99.0, 0.0]))[1] == pytest.approx(0.99), "two equal shares of two are all"
    assert vote_weights(np.array([1.0, 1.0, 1.0, 97.0]))[3] == pytest.approx(0.5)
    votes, zero = np.array([0.25, 0.25, 0.5, 0.0]), np.zeros(4)
    assert count_change(np.array([1.0, -2.0, 50.0, 1e9]), zero, votes) == pytest.approx(0.25 - 0.5 + 0.5 * 6)
    assert count_change(np.array([1.0, -2.0, -50.0, 0.0]), zero, votes, k=2) == pytest.approx(0.25 - 0.5 - 0.5 * 4)
    assert count_change(np.array([1.0, np.nan, 1.0, 0.0]), zero, votes) == pytest.approx(0.75)


def test_bounded_rows_by_hand():
    told = Evaluation(np.array([1, 0, 3, 60]), np.array([2, 0, 4, 100]), np.array([1.0, 0.0, 2.0, 50.0]))
    counted = bound_sizes(told, 2.5)
    assert counted.sizes.tolist() == [2, 0, 4, 10]
    assert counted.correct.tolist() == [1, 0, 3, 6]
    assert counted.losses is not None
    assert counted.losses.tolist() == [1, 0, 2, 5]
    assert bound_sizes(told, 25.0) is told
    tiny = bound_sizes(Evaluation(np.array([1, 1]), np.array([1, 2])), 0.5)
    assert tiny.sizes.tolist() == [1, 1], "never below one row"
