"""Aggregators: what weight does in them, what a few clients cannot do, in blocks and in a whole round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet
from hypothesis import given
from hypothesis import strategies as st

import fedmerit.core.updates
from fedmerit import Momentum, Recipe, device_aware, fedavg, m2f
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.table import DS, LD
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import play
from fedmerit.core.server.aggregators import (
    NNM,
    Aggregator,
    Bucketing,
    CoordinateMedian,
    GeometricMedian,
    Mean,
    MultiKrum,
    TrimmedMean,
)
from fedmerit.core.server.optimizers import Extrapolated
from fedmerit.core.stages.clip import Clip
from fedmerit.core.state import State
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

ROBUST: list[Aggregator] = [
    CoordinateMedian(),
    TrimmedMean(0.35),
    GeometricMedian(),
    MultiKrum(0.35),
    NNM(TrimmedMean(0.35), 0.35),
    NNM(CoordinateMedian(), 0.35),
]
ALL: list[Aggregator] = [Mean(), *ROBUST, Bucketing(GeometricMedian(), 3), Bucketing(CoordinateMedian())]
RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=(9, 40)).astype(np.float32)
WEIGHTS = RANDOM.random(9)
WEIGHTS /= WEIGHTS.sum()


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_several_weightings_are_each_of_them(aggregator: Aggregator) -> None:
    several = np.stack([WEIGHTS, np.full(9, 1 / 9), np.zeros(9), WEIGHTS[::-1]])
    together = aggregator(Updates(ROWS), several)
    assert together.shape == (4, 40)
    assert together.dtype == np.float32
    for weights, found in zip(several, together, strict=True):
        np.testing.assert_allclose(aggregator(Updates(ROWS), weights), found, atol=1e-5)
    assert not together[2].any()  # nobody counts: nothing is learned


@pytest.mark.parametrize("aggregator", [one for one in ALL if not isinstance(one, Bucketing)], ids=repr)
def test_a_client_of_weight_zero_is_as_if_it_were_not_there(aggregator: Aggregator) -> None:
    weights = np.array([0.3, 0, 0.2, 0.1, 0.1, 0, 0.1, 0.1, 0.1])
    hostile = ROWS.copy()
    hostile[weights == 0] = 1e15
    alone = aggregator(Updates(ROWS[weights > 0]), weights[weights > 0])
    np.testing.assert_allclose(aggregator(Updates(hostile), weights), alone, atol=1e-5)


@pytest.mark.parametrize("aggregator", ALL[1:], ids=repr)
def test_weights_count_by_their_ratios_and_updates_in_any_unit(aggregator: Aggregator) -> None:
    found = aggregator(Updates(ROWS), WEIGHTS)
    for times in (0.25, 4.0):
        np.testing.assert_allclose(aggregator(Updates(ROWS), times * WEIGHTS), found, rtol=1e-6)
    np.testing.assert_allclose(aggregator(Updates(ROWS * np.float32(2**-10)), WEIGHTS), found * 2**-10, rtol=1e-5)


@pytest.mark.parametrize("aggregator", [one for one in ALL if not isinstance(one, Bucketing | MultiKrum)], ids=repr)
def test_weight_two_is_two_clients(aggregator: Aggregator) -> None:
    doubled = np.full(9, 0.1)
    doubled[3] = 0.2
    twins = Updates(np.concatenate([ROWS, ROWS[3:4]]))
    np.testing.assert_allclose(aggregator(Updates(ROWS), doubled), aggregator(twins, np.full(10, 0.1)), atol=1e-4)


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("size", [10.0, 1e6, 1e15])
def test_a_third_of_the_weight_cannot_take_the_aggregate_away(aggregator: Aggregator, size: float) -> None:
    hostile = ROWS.copy()
    hostile[6:] = size * np.sign(RANDOM.normal(size=(3, 40)))
    weights = np.array([0.12, 0.08, 0.11, 0.13, 0.12, 0.11, 0.09, 0.12, 0.12])
    found = aggregator(Updates(hostile), weights)
    assert np.linalg.norm(found) <= 2 * np.linalg.norm(ROWS[:6], axis=1).max()
    assert np.linalg.norm(Mean()(Updates(hostile), weights)) > size


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_what_all_agree_on_is_what_comes_out(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    row = random.normal(size=7).astype(np.float32)
    weights = random.random(number) + 0.01
    for aggregator in ALL:
        found = aggregator(Updates(np.tile(row, (number, 1))), weights / weights.sum())
        np.testing.assert_allclose(found, row, atol=1e-5)


@given(st.integers(3, 12), st.integers(0, 2**32 - 1))
def test_the_order_of_clients_does_not_count(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 5)).astype(np.float32)
    weights = random.dirichlet(np.ones(number))
    order = random.permutation(number)
    for aggregator in (one for one in ROBUST if not isinstance(one, MultiKrum)):  # two near each other score the same
        one = aggregator(Updates(rows), weights)
        np.testing.assert_allclose(aggregator(Updates(rows[order]), weights[order]), one, atol=1e-4)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0, 0.49))
def test_a_median_or_trimmed_mean_lies_among_the_values(number: int, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 5)).astype(np.float32)
    weights = random.dirichlet(np.ones(number))
    for aggregator in (CoordinateMedian(), TrimmedMean(share)):
        found = aggregator(Updates(rows), weights)
        assert (found >= rows.min(axis=0) - 1e-6).all()
        assert (found <= rows.max(axis=0) + 1e-6).all()
    np.testing.assert_allclose(TrimmedMean(0)(Updates(rows), weights), weights @ rows, atol=1e-5)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_blocks_threads_and_places_change_nothing(aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RANDOM.normal(size=(9, 5000)).astype(np.float32)
    spread = np.full((20, 5000), np.nan, dtype=np.float32)
    places = np.arange(1, 19, 2)
    spread[places] = rows
    whole = aggregator(Updates(rows), WEIGHTS)
    assert aggregator(Updates(spread, places), WEIGHTS).tobytes() == whole.tobytes()
    monkeypatch.setattr(fedmerit.core.updates, "SMALL_BYTES", 0)
    assert aggregator(Updates(rows), WEIGHTS).tobytes() == whole.tobytes()
    monkeypatch.setattr(fedmerit.core.updates, "COLUMNS", 512)
    np.testing.assert_allclose(aggregator(Updates(rows), WEIGHTS), whole, atol=1e-5)


def test_mixed_updates_are_those_of_the_mixed_matrix() -> None:
    factors = RANDOM.normal(size=(4, 9))
    updates = Updates(ROWS)
    for known in (updates, Updates(ROWS)):
        exact = factors @ ROWS.astype(np.float64)
        mixed = known.mix(factors)
        np.testing.assert_allclose(mixed.combine(np.eye(4)), exact, atol=1e-5)
        np.testing.assert_allclose(mixed.row(2), exact[2], atol=1e-5)
        np.testing.assert_allclose(mixed.norms, np.linalg.norm(exact, axis=1), rtol=1e-6)
        np.testing.assert_allclose(mixed.by_columns(lambda block: block.max(axis=0)), exact.max(axis=0), atol=1e-5)
        np.testing.assert_allclose(mixed.mix(np.array([1, 0, 2, 3.0])).row(2), 2 * exact[2], atol=1e-5)
        np.testing.assert_allclose(
            known.mix(np.arange(9.0)).mix(factors).row(0), factors[0] * np.arange(9) @ ROWS, atol=1e-4
        )
        np.testing.assert_allclose(mixed.keep(np.array([3, 1])).row(0), exact[3], atol=1e-5)
        assert (len(mixed), len(mixed.keep(np.array([3, 1])))) == (4, 2)
        _ = updates.products  # the second time they are known beforehand


def test_distances_and_cosines_to_a_vector() -> None:
    vector = ROWS[4]
    np.testing.assert_allclose(Updates(ROWS).distances(vector), np.linalg.norm(ROWS - vector, axis=1), atol=1e-5)
    cosines = Updates(ROWS).cosines_to(vector)
    assert cosines[4] == pytest.approx(1)
    np.testing.assert_allclose(cosines, Updates(ROWS).cosines()[4], atol=1e-6)
    assert not Updates(ROWS).cosines_to(np.zeros(40, np.float32)).any()


def play_once(recipe: Recipe, updates: np.ndarray) -> np.ndarray:
    fleet = CannedFleet(updates, [{"samples": 10, "labels": 2}] * len(updates))
    start = State(np.zeros(updates.shape[1], np.float32))
    return play(start, recipe, fleet, selection=Uniform(1.0), seed=3, evaluate=False)[0].model


def test_a_round_aggregates_as_the_recipe_says() -> None:
    updates = np.array([[1, 0], [2, 5], [90, 1]], dtype=np.float32)
    assert play_once(replace(fedavg(), aggregate=CoordinateMedian()), updates).tolist() == [2, 1]
    assert play_once(replace(fedavg(), aggregate=Mean()), updates).tolist() == play_once(fedavg(), updates).tolist()


def test_the_mean_square_is_that_of_the_clipped_updates() -> None:
    updates = np.array([[3, 0], [0, 3], [0, 900]], dtype=np.float32)
    clipped = np.array([[3, 0], [0, 3], [0, 3]], dtype=np.float32)
    cut = play_once(replace(fedavg(), step=Extrapolated(), clip=Clip(3.0)), updates)
    np.testing.assert_allclose(cut, play_once(replace(fedavg(), step=Extrapolated()), clipped), rtol=1e-6)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_recipes_with_it_are_kept_as_json(aggregator: Aggregator) -> None:
    recipe = replace(fedavg(), aggregate=aggregator, clip=Clip(2.0), step=Momentum())
    assert part_from_json(part_to_json(recipe)) == recipe


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrimmedMean(0.5), "below 0.5; got 0.5"),
        (lambda: NNM(Mean(), -0.1), "below 0.5; got -0.1"),
        (lambda: MultiKrum(float("nan")), "below 0.5; got nan"),
        (lambda: Bucketing(Mean(), 1), "2 updates or more; got 1"),
        (lambda: GeometricMedian(0.0), "above 0; got 0.0"),
        (lambda: GeometricMedian(iterations=0), "at least 1; got 0"),
        (lambda: Clip(0.0), 'or "median"; got 0.0'),
        (lambda: Clip("mean"), "got 'mean'"),  # type: ignore[arg-type]
        (lambda: replace(m2f(), aggregate=CoordinateMedian()), "personal models take no other aggregate"),
        (lambda: replace(m2f(), clip=Clip()), "personal models take no other aggregate and no clip"),
        (lambda: replace(fedavg(), aggregate=CoordinateMedian(), step=Extrapolated()), "use another step, or the mean"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()  # type: ignore[operator]


def test_a_search_compares_what_the_aggregator_makes() -> None:
    updates = np.array([[1, 0], [2, 5], [90, 1], [2, 2]], dtype=np.float32)
    recipe = replace(device_aware(DS, LD, normalise="max"), aggregate=CoordinateMedian())
    assert np.abs(play_once(recipe, updates)).max() < 90
