"""Votes: one judge, whatever it says, moves a decision by its vote and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.votes import count_accuracy, count_change, count_ranks, vote_weights

SIZES = st.lists(st.integers(1, 10**12), min_size=2, max_size=12).map(np.array)
CAPS = st.floats(1, 3)
ANYTHING = st.floats(allow_nan=True, allow_infinity=True)
EPS = 1e-9


@given(SIZES, CAPS)
def test_no_judge_has_more_than_its_cap(sizes: np.ndarray, cap: float):
    votes = vote_weights(sizes, cap)
    assert votes.sum() == pytest.approx(1)
    assert votes.max() <= min(1, cap / len(sizes)) + EPS


@given(st.integers(2, 12), st.integers(1, 50), CAPS, st.data())
def test_equal_sizes_give_the_plain_accuracy(judges: int, size: int, cap: float, data: st.DataObject):
    correct = np.array(data.draw(st.lists(st.integers(0, size), min_size=judges, max_size=judges)))
    assert count_accuracy(correct, np.full(judges, size), cap) == pytest.approx(correct.sum() / (size * judges))


@given(SIZES, CAPS, st.floats(0, 1), ANYTHING)
def test_one_judge_moves_the_accuracy_by_its_vote(sizes: np.ndarray, cap: float, share: float, lie: float):
    correct = share * sizes
    before = count_accuracy(correct, sizes, cap)
    correct[0] = lie
    after = count_accuracy(correct, sizes, cap)
    assert 0 <= after <= 1 + EPS
    assert abs(after - before) <= vote_weights(sizes, cap)[0] + EPS


@given(st.integers(2, 6), st.integers(1, 8), st.data())
def test_one_judge_moves_a_rank_count_by_its_vote(candidates: int, judges: int, data: st.DataObject):
    draw = st.lists(st.floats(0, 10), min_size=judges, max_size=judges)
    losses = np.array([data.draw(draw) for _ in range(candidates)])
    votes = np.full(judges, 1 / judges)
    before = count_ranks(losses, votes)
    losses[:, 0] = data.draw(st.lists(ANYTHING, min_size=candidates, max_size=candidates))
    after = count_ranks(losses, votes)
    assert np.isfinite(after).all()
    assert np.abs(after - before).max() <= 1 / judges + EPS


@given(st.integers(2, 6), st.integers(1, 8), st.floats(0.001, 1000), st.data())
def test_ranks_do_not_depend_on_the_size_of_losses_and_the_best_of_all_wins(
    candidates: int, judges: int, scale: float, data: st.DataObject
):
    draw = st.lists(st.integers(1, 100), min_size=judges, max_size=judges)
    losses = np.array([data.draw(draw) for _ in range(candidates)], dtype=np.float64)
    votes = np.full(judges, 1 / judges)
    larger = losses.copy()
    larger[:, 0] *= scale
    assert count_ranks(larger, votes) == pytest.approx(count_ranks(losses, votes))
    losses[0] = 0.0
    assert count_ranks(losses, votes).argmax() == 0
    assert count_ranks(losses, votes)[0] == pytest.approx(1)


@given(st.integers(3, 10), ANYTHING, ANYTHING)
def test_one_judge_cannot_turn_the_change_that_all_others_see(judges: int, lie: float, other: float):
    losses, reference = np.full(judges, 0.9), np.full(judges, 1.0)
    losses[0], reference[0] = lie, other
    votes = np.full(judges, 1 / judges)
    change = count_change(losses, reference, votes, k=1)
    assert change <= -0.1 * (judges - 2) / judges + EPS


def test_nobody_answered():
    assert np.isnan(count_accuracy(np.zeros(2), np.zeros(2)))
    assert vote_weights(np.zeros(2)).tolist() == [0, 0]
    assert count_change(np.zeros(2), np.ones(2), np.zeros(2)) == 0
    assert count_ranks(np.zeros((1, 2)), np.array([0.5, 0.5])).tolist() == [1]
