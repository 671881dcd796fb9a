"""Caps: weights that sum to 1 within their bounds, in their order, and as they were where nothing is to be cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.weights.limits import USUAL_WEIGHT, Cap, cap_weights, water_fill
from fedmerit.core.weights.weigh import Weights, shares

EPS = 1e-9
VALUES = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.floats(0.01, 1))
CAPS = st.floats(1, 20)


@st.composite
def weights(draw: st.DrawFn, values: st.SearchStrategy[float] = VALUES, least: int = 1) -> np.ndarray:
    drawn = np.array(draw(st.lists(values, min_size=least, max_size=12)))
    return shares(drawn if drawn.any() else drawn + 1)


def limited(earned: np.ndarray, cap: float, usual: np.ndarray) -> np.ndarray:
    """The weights after a cap; `usual` are those by usual claims."""
    column = earned[:, np.newaxis]
    return Cap(cap)(Weights(column, column, earned, earned), {USUAL_WEIGHT: usual}).weights


@given(weights(), CAPS)
def test_sum_bound_order_and_once_is_enough(earned: np.ndarray, cap: float):
    capped = cap_weights(earned, cap)
    assert capped.sum() == pytest.approx(1)
    assert capped.max() <= min(1, cap / len(earned)) + EPS
    assert (capped >= 0).all()
    order = np.argsort(earned, kind="stable")
    assert (np.diff(capped[order]) >= -EPS).all()
    assert cap_weights(capped, cap) == pytest.approx(capped, abs=EPS)


@given(weights(), CAPS)
def test_within_the_cap_nothing_changes(earned: np.ndarray, room: float):
    cap = max(1.0, earned.max() * len(earned)) * room
    assert cap_weights(earned, cap).tobytes() == earned.tobytes()


@given(weights(st.floats(0.01, 1), least=2), CAPS, st.data())
def test_a_small_change_of_the_weights_changes_little(earned: np.ndarray, cap: float, data: st.DataObject):
    moved = shares(
        earned + np.array(data.draw(st.lists(st.floats(0, 1e-9), min_size=len(earned), max_size=len(earned))))
    )
    assert cap_weights(moved, cap) == pytest.approx(cap_weights(earned, cap), abs=1e-6)


@given(weights(st.floats(0.01, 1), least=2), CAPS)
def test_who_is_not_cut_keeps_its_ratio_to_others_that_are_not(earned: np.ndarray, cap: float):
    capped = cap_weights(earned, cap)
    free = capped < cap / len(earned) - EPS
    assert capped[free] / earned[free] == pytest.approx(np.full(free.sum(), (capped[free] / earned[free])[:1]))


@given(weights(least=2), CAPS, st.data())
def test_no_weight_is_above_twice_the_usual_one_or_an_equal_share(earned: np.ndarray, cap: float, data: st.DataObject):
    number = len(earned)
    usual = shares(np.array(data.draw(st.lists(VALUES, min_size=number, max_size=number))))  # all 0: no client earns
    capped = limited(earned, cap, usual)
    assert capped.sum() == pytest.approx(1)
    bound = np.maximum(2 * cap_weights(usual, cap), 1 / number)
    assert (capped <= np.minimum(bound, cap / number) + EPS).all()
    assert limited(earned, cap, earned).tobytes() == cap_weights(earned, cap).tobytes()


@pytest.mark.parametrize(
    ("earned", "cap", "expected"),
    [
        ([0.7, 0.2, 0.1], 1.2, [0.4, 0.4, 0.2]),
        ([1.0, 0.0, 0.0, 0.0], 2, [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        ([0.9, 0.06, 0.04, 0.0], 1, [1 / 4] * 4),
        ([0.96, 0.02, 0.01, 0.01], 2, [0.5, 0.25, 0.125, 0.125]),
        ([0.0, 0.0], 2, [0.0, 0.0]),
        ([1.0], 1, [1.0]),
        ([1.0 - 3e-310, 1e-310, 2e-310], 1.5, [1 / 2, 1 / 6, 1 / 3]),
    ],
)
def test_by_hand(earned: list[float], cap: float, expected: list[float]):
    assert cap_weights(np.array(earned), cap) == pytest.approx(expected)


def test_bounds_may_differ():
    assert water_fill(np.array([0.5, 0.5]), np.array([0.2, 0.9])) == pytest.approx([0.2, 0.8])


def test_usual_weights_by_hand():
    """Twice the usual weights: 0.2, 0.6 and 1.2; the first has at least an equal share, and the cap is a half."""
    earned, usual = np.array([0.6, 0.2, 0.2]), np.array([0.1, 0.3, 0.6])
    assert limited(earned, 1.5, usual) == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_bounds_whose_sum_is_one_but_for_rounding_are_filled():
    """26 bounds of 1 / 26 and a bit: summed one after the other they leave more to the last than its bound."""
    bounds = np.array([*[1 / 26 * (1 + 2**-52)] * 26, 0.5])
    earned = np.array([*shares(1.5 ** -np.arange(26)), 0.0])
    assert bounds[:26].sum() > 1
    assert 1 - np.cumsum(bounds)[24] > bounds[25]
    assert water_fill(earned, bounds) == pytest.approx([*[1 / 26] * 26, 0.0])
