"""Caps: weights that sum to 1 within their bounds, in their order, and as they were where nothing is to be cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.facts import SITE
from fedmerit.core.weights.limits import USUAL_WEIGHT, Cap, SiteCap, cap_weights, water_fill
from fedmerit.core.weights.weigh import Weights, shares

EPS = 1e-9
VALUES = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.floats(0.01, 1))
CAPS = st.floats(1, 20)


@st.composite
def weights(draw: st.DrawFn, values: st.SearchStrategy[float] = VALUES, least: int = 1) -> np.ndarray:
    drawn = np.array(draw(st.lists(values, min_size=least, max_size=12)))
    return shares(drawn if drawn.any() else drawn + 1)


def limited(
    earned: np.ndarray, cap: float | None, sites: np.ndarray, share: float, usual: np.ndarray | None = None
) -> np.ndarray:
    """The weights after a cap, where there is one, and the cap of sites; `usual` are those by usual claims."""
    column = earned[:, np.newaxis]
    result = Weights(column, column, earned, earned)
    for limit in (*(() if cap is None else (Cap(cap),)), SiteCap(share)):
        result = limit(result, {SITE: sites} | ({} if usual is None else {USUAL_WEIGHT: usual}))
    return result.weights


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
    capped = limited(earned, cap, np.arange(number), 1.0, usual)
    assert capped.sum() == pytest.approx(1)
    bound = np.maximum(2 * cap_weights(usual, cap), 1 / number)
    assert (capped <= np.minimum(bound, cap / number) + EPS).all()
    assert limited(earned, cap, np.arange(number), 1.0, earned).tobytes() == cap_weights(earned, cap).tobytes()


@given(weights(least=2), st.one_of(st.none(), CAPS), st.floats(0.05, 1), st.data())
def test_no_site_holds_more_than_its_cap_where_there_are_enough(
    earned: np.ndarray, cap: float | None, share: float, data: st.DataObject
):
    number = len(earned)
    sites = np.array(data.draw(st.lists(st.integers(0, 3), min_size=number, max_size=number)), dtype=np.float64)
    capped = limited(earned, cap, sites, share)
    assert capped.sum() == pytest.approx(1)
    assert capped.max() <= (1 if cap is None else min(1, cap / number)) + EPS
    held = np.array([capped[sites == site].sum() for site in np.unique(sites)])
    room = np.array([(1 if cap is None else min(1, cap / number)) * (sites == site).sum() for site in np.unique(sites)])
    if np.minimum(room, share).sum() >= 1:
        assert held.max() <= share + EPS
    assert limited(capped, cap, sites, share) == pytest.approx(capped, abs=1e-6)


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


def test_a_site_of_three_holds_what_two_clients_alone_may():
    earned, sites = np.array([0.3, 0.3, 0.2, 0.1, 0.1]), np.array([0.0, 0.0, 0.0, 1.0, 2.0])
    assert limited(earned, None, sites, 0.4) == pytest.approx([0.15, 0.15, 0.1, 0.3, 0.3])


def test_bounds_may_differ():
    assert water_fill(np.array([0.5, 0.5]), np.array([0.2, 0.9])) == pytest.approx([0.2, 0.8])


def test_sites_at_their_cap_are_not_touched():
    earned, sites = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.0, 0.0, 1.0])
    assert limited(earned, None, sites, float(earned[:3].sum())) is earned
    assert limited(earned, None, sites, 0.55) is not earned


@pytest.mark.parametrize(
    ("earned", "cap", "sites", "share", "expected"),
    [
        ([0.7, 0.3], None, [0, 0], 0.5, [0.7, 0.3]),  # one site: the least bound that leaves room is all
        ([0.7, 0.2, 0.1], None, [0, 1, 1], 0.3, [0.5, 1 / 3, 1 / 6]),  # two sites have at least a half
        ([0.7, 0.2, 0.1, 0.0], 2.0, [0, 1, 1, 1], 0.4, [0.5, 1 / 3, 1 / 6, 0.0]),
        ([1.0, 0.0, 0.0], None, [0, 1, 1], 0.6, [0.6, 0.2, 0.2]),  # a site without weight has it by its bounds
        ([0.4, 0.4, 0.1, 0.1], 1.2, [0, 0, 1, 1], 0.5, [0.25, 0.25, 0.25, 0.25]),
        ([0.3, 0.3, 0.3, 0.1], 1.2, [0, 0, 0, 1], 0.5, [7 / 30, 7 / 30, 7 / 30, 0.3]),  # the second has no room for 0.5
    ],
)
def test_sites_by_hand(earned: list[float], cap: float | None, sites: list[int], share: float, expected: list[float]):
    assert limited(np.array(earned), cap, np.array(sites, np.float64), share) == pytest.approx(expected)


def test_usual_weights_by_hand():
    """Twice the usual weights: 0.2, 0.6 and 1.2; the first has at least an equal share, and the cap is a half."""
    earned, usual = np.array([0.6, 0.2, 0.2]), np.array([0.1, 0.3, 0.6])
    assert limited(earned, 1.5, np.arange(3), 1.0, usual) == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_bounds_whose_sum_is_one_but_for_rounding_are_filled():
    """26 bounds of 1 / 26 and a bit: summed one after the other they leave more to the last than its bound."""
    bounds = np.array([*[1 / 26 * (1 + 2**-52)] * 26, 0.5])
    earned = np.array([*shares(1.5 ** -np.arange(26)), 0.0])
    assert bounds[:26].sum() > 1
    assert 1 - np.cumsum(bounds)[24] > bounds[25]
    assert water_fill(earned, bounds) == pytest.approx([*[1 / 26] * 26, 0.0])


def test_inside_a_site_a_client_is_bounded_by_the_cap_of_the_round():
    """Site 0 falls from 0.6 to 0.5 and keeps its proportions, since 1/3 is below the cap of 0.4."""
    capped = limited(np.array([0.4, 0.2, 0.2, 0.2]), 1.6, np.array([0.0, 0, 1, 1]), 0.5)
    assert capped == pytest.approx([1 / 3, 1 / 6, 0.25, 0.25])
