"""Aggregators: what weight does in them, what a few clients cannot do, in blocks and in a whole round."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet, run_canned
from hypothesis import given
from hypothesis import strategies as st

import fedmerit.core.updates
from fedmerit import DS, LD, Clip, FedExP, Recipe, device_aware, fedavg
from fedmerit.core.server.aggregators import NNM, CoordinateMedian, GeometricMedian, MultiKrum, TrimmedMean
from fedmerit.core.server.server import Aggregator, Batch, Mean, Server
from fedmerit.core.updates import Updates

ROBUST: list[Aggregator] = [
    CoordinateMedian(),
    TrimmedMean(0.35),
    GeometricMedian(),
    MultiKrum(0.35),
    NNM(TrimmedMean(0.35), 0.35),
    NNM(CoordinateMedian(), 0.35),
]
ALL: list[Aggregator] = [Mean(), *ROBUST]
RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=(9, 40)).astype(np.float32)
WEIGHTS = RANDOM.random(9)
WEIGHTS /= WEIGHTS.sum()


def aggregated(aggregator: Aggregator, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return aggregator(Batch(Updates(rows)), weights)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_several_weightings_are_each_of_them(aggregator: Aggregator) -> None:
    several = np.stack([WEIGHTS, np.full(9, 1 / 9), np.zeros(9), WEIGHTS[::-1]])
    together = aggregated(aggregator, ROWS, several)
    assert together.shape == (4, 40)
    assert together.dtype == np.float32
    for weights, found in zip(several, together, strict=True):
        np.testing.assert_allclose(aggregated(aggregator, ROWS, weights), found, atol=1e-5)
    assert not together[2].any()  # nobody counts: nothing is learned


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_a_client_of_weight_zero_is_as_if_it_were_not_there(aggregator: Aggregator) -> None:
    weights = np.array([0.3, 0, 0.2, 0.1, 0.1, 0, 0.1, 0.1, 0.1])
    hostile = ROWS.copy()
    hostile[weights == 0] = 1e15
    alone = aggregated(aggregator, ROWS[weights > 0], weights[weights > 0])
    np.testing.assert_allclose(aggregated(aggregator, hostile, weights), alone, atol=1e-5)


@pytest.mark.parametrize("aggregator", ALL[1:], ids=repr)
def test_weights_count_by_their_ratios_and_updates_in_any_unit(aggregator: Aggregator) -> None:
    found = aggregated(aggregator, ROWS, WEIGHTS)
    for times in (0.25, 4.0):
        np.testing.assert_allclose(aggregated(aggregator, ROWS, times * WEIGHTS), found, rtol=1e-6)
    np.testing.assert_allclose(aggregated(aggregator, ROWS * np.float32(2**-10), WEIGHTS), found * 2**-10, rtol=1e-5)


@pytest.mark.parametrize("aggregator", [one for one in ALL if not isinstance(one, MultiKrum)], ids=repr)
def test_weight_two_is_two_clients(aggregator: Aggregator) -> None:
    doubled = np.full(9, 0.1)
    doubled[3] = 0.2
    twins = np.concatenate([ROWS, ROWS[3:4]])
    np.testing.assert_allclose(
        aggregated(aggregator, ROWS, doubled), aggregated(aggregator, twins, np.full(10, 0.1)), atol=1e-4
    )


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("size", [10.0, 1e6, 1e15])
def test_a_third_of_the_weight_cannot_take_the_aggregate_away(aggregator: Aggregator, size: float) -> None:
    hostile, random = ROWS.copy(), np.random.default_rng(6)
    hostile[6:] = size * np.sign(random.normal(size=(3, 40)))
    weights = np.array([0.12, 0.08, 0.11, 0.13, 0.12, 0.11, 0.09, 0.12, 0.12])
    found = aggregated(aggregator, hostile, weights)
    assert np.linalg.norm(found) <= 2 * np.linalg.norm(ROWS[:6], axis=1).max()
    assert np.linalg.norm(aggregated(Mean(), hostile, weights)) > size


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_what_all_agree_on_is_what_comes_out(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    row = random.normal(size=7).astype(np.float32)
    weights = random.random(number) + 0.01
    for aggregator in ALL:
        found = aggregated(aggregator, np.tile(row, (number, 1)), weights / weights.sum())
        np.testing.assert_allclose(found, row, atol=1e-5)


@given(st.integers(3, 12), st.integers(0, 2**32 - 1))
def test_the_order_of_clients_does_not_count(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 5)).astype(np.float32)
    weights = random.dirichlet(np.ones(number))
    order = random.permutation(number)
    for aggregator in (one for one in ROBUST if not isinstance(one, MultiKrum)):  # two near each other score the same
        one = aggregated(aggregator, rows, weights)
        np.testing.assert_allclose(aggregated(aggregator, rows[order], weights[order]), one, atol=1e-4)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0, 0.49))
def test_a_median_or_trimmed_mean_lies_among_the_values(number: int, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 5)).astype(np.float32)
    weights = random.dirichlet(np.ones(number))
    for aggregator in (CoordinateMedian(), TrimmedMean(share)):
        found = aggregated(aggregator, rows, weights)
        assert (found >= rows.min(axis=0) - 1e-6).all()
        assert (found <= rows.max(axis=0) + 1e-6).all()
    np.testing.assert_allclose(aggregated(TrimmedMean(0), rows, weights), weights @ rows, atol=1e-5)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_blocks_threads_and_places_change_nothing(aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RANDOM.normal(size=(9, 5000)).astype(np.float32)
    spread = np.full((20, 5000), np.nan, dtype=np.float32)
    places = np.arange(1, 19, 2)
    spread[places] = rows
    whole = aggregated(aggregator, rows, WEIGHTS)
    assert aggregator(Batch(Updates(spread, places)), WEIGHTS).tobytes() == whole.tobytes()
    monkeypatch.setattr(fedmerit.core.updates, "SMALL_BYTES", 0)
    assert aggregated(aggregator, rows, WEIGHTS).tobytes() == whole.tobytes()
    monkeypatch.setattr(fedmerit.core.updates, "COLUMNS", 512)
    np.testing.assert_allclose(aggregated(aggregator, rows, WEIGHTS), whole, atol=1e-5)


def model_after(recipe: Recipe, updates: np.ndarray) -> np.ndarray:
    return run_canned(recipe, CannedFleet(updates, [{"samples": 10, "labels": 2}] * len(updates)))[0].model


def test_a_round_and_its_search_aggregate_as_the_recipe_says() -> None:
    updates, median = np.array([[1, 0], [2, 5], [90, 1]], dtype=np.float32), Server(CoordinateMedian())
    assert model_after(replace(fedavg(), server=median), updates).tolist() == [2, 1]
    assert model_after(replace(device_aware(DS, LD, normalise="max"), server=median), updates).tolist() == [2, 1]


def test_the_mean_square_is_that_of_the_clipped_updates() -> None:
    updates = np.array([[3, 0], [0, 3], [0, 900]], dtype=np.float32)
    clipped = np.array([[3, 0], [0, 3], [0, 3]], dtype=np.float32)
    recipe = replace(fedavg(), server=Server(optimizer=FedExP()))
    found = model_after(replace(recipe, stages=(Clip(),)), updates)
    np.testing.assert_allclose(found, model_after(recipe, clipped), rtol=1e-6)
