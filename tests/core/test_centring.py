"""Sums of clients to one centring: by hand, as numpy over all rows, and against liars."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import SoftmaxLearner
from hypothesis import given
from hypothesis import strategies as st

from fedmerit.core.server.centring import Centring, FeatureSums, centre_model, check_sums, feature_sums, make_centring
from fedmerit.errors import ConfigError, RunFailed


def test_by_hand():
    sums = {0: feature_sums(np.array([[1.0, 5.0]])), 1: feature_sums(np.array([[3.0, 5.0], [8.0, 5.0]]))}
    assert make_centring(sums, "mean").mean.tolist() == [4.0, 5.0]
    found = make_centring(sums, "standard")
    assert found.deviation.tolist() == pytest.approx([np.sqrt((9 + 1 + 16) / 3), 1.0])  # 5 never changes
    np.testing.assert_allclose(found(np.array([[4.0, 6.0]])), [[0.0, 1.0]])


@given(st.lists(st.integers(0, 2500), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.booleans())
def test_as_if_all_rows_were_in_one_place(sizes: list[int], seed: int, pictures: bool):
    random = np.random.default_rng(seed)
    parts = [random.integers(0, 256, (size, 2, 1, 1)).astype(np.uint8) for size in sizes]
    parts = parts if pictures else [part.reshape(-1, 2) * 3.5 for part in parts]
    rows = np.concatenate(parts).reshape(-1, 2).astype(float) / (255 if pictures else 1)
    good, left_out = check_sums(({place: feature_sums(part) for place, part in enumerate(parts)}, {}), len(rows))
    assert not left_out
    assert set(good) == {place for place, size in enumerate(sizes) if size}
    if len(rows) > 1 and (rows.std(axis=0) > 0).all():
        found = make_centring(good, "standard")
        np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.deviation, rows.std(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found(rows).mean(axis=0), 0, atol=1e-9)


HONEST = feature_sums(np.array([[1.0, 2.0], [3.0, 4.0]]))


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (FeatureSums(2, np.array([np.nan, 1.0]), HONEST.squares), "NaN"),
        (FeatureSums(2, HONEST.sums, np.array([np.inf, 1.0])), "NaN"),
        (FeatureSums(2, HONEST.sums[:1], HONEST.squares[:1]), "shape"),
        (FeatureSums(2, HONEST.sums, HONEST.squares[:1]), "shape"),
        (FeatureSums(99, HONEST.sums, HONEST.squares), "rows"),
        (FeatureSums(-1, HONEST.sums, HONEST.squares), "rows"),
        (FeatureSums(2, np.array([1e9, 1e9]), np.array([1e18, 1e18])), "exceeds 1e+06"),
        (FeatureSums(2, HONEST.sums, np.zeros(2)), "too small"),
    ],
)
def test_who_lies_is_left_out_by_name(lie: FeatureSums, reason: str):
    good, left_out = check_sums(({0: HONEST, 1: lie, 2: HONEST}, {3: "away"}), rows=10)
    assert list(good) == [0, 2]
    assert reason in left_out.pop(1)
    assert left_out == {3: "away"}


def test_a_centring_keeps_the_shape_of_pictures():
    assert Centring(np.zeros(6))(np.ones((4, 2, 3, 1))).shape == (4, 2, 3, 1)


@pytest.mark.parametrize(
    ("told", "good"),
    [
        (FeatureSums(10, np.array([1.0, 1.0]), np.array([1.0, 1.0])), True),  # all rows of the federation
        (FeatureSums(11, np.array([1.0, 1.0]), np.array([1.0, 1.0])), False),
        (FeatureSums(1, np.array([1e6, 0.0]), np.array([1e12, 0.0])), True),
        (FeatureSums(1, np.array([1.001e6, 0.0]), np.array([1.1e12, 0.0])), False),
        (FeatureSums(2, np.array([1.0, 1.0]), np.array([0.5, 0.5])), True),  # all rows alike
        (FeatureSums(2, np.array([1.0, 1.0]), np.array([0.5, 0.4])), False),
        (FeatureSums(2, np.array([1.0, 1.0]), np.array([0.5, 0.0])), False),
        (FeatureSums(2, np.array([1.0, 1e-6]), np.array([0.5, 0.0])), True),  # rounding
    ],
)
def test_what_sums_may_be(told: FeatureSums, good: bool):
    assert (1 in check_sums(({0: HONEST, 1: told}, {}), rows=10)[0]) == good
    assert 1 in check_sums(({0: HONEST, 1: FeatureSums(99, 99 * HONEST.sums, 99**2 * HONEST.squares)}, {}))[0]


def test_who_has_no_rows_says_nothing_and_nobody_has_no_length():
    nothing = FeatureSums(0, np.zeros(7), np.zeros(7))
    assert check_sums(({0: nothing, 1: HONEST}, {})) == ({1: HONEST}, {})
    assert check_sums(({0: nothing}, {2: "away"})) == ({}, {2: "away"})


def test_a_small_deviation_is_one_and_rounding_is_none():
    small = make_centring({0: feature_sums(np.array([[0.0, 1000.0], [1e-7, 1000.1]]))}, "standard")
    assert small.deviation.tolist() == pytest.approx([5e-8, 0.05], rel=1e-3)
    flat = make_centring({0: feature_sums(np.array([[0.0, 0.1, 1e5 + 0.1]] * 7))}, "standard")
    assert flat.deviation.tolist() == [1, 1, 1]


class Carrying(SoftmaxLearner):
    """A learner whose models carry the centring behind their own values."""

    def centred(self, model: np.ndarray, centring: Centring) -> np.ndarray:
        return np.concatenate([model, centring.mean]).astype(np.float32)


class Summed:
    """Clients that summed up their inputs."""

    def __init__(self, *sums: FeatureSums) -> None:
        self._sums = dict(enumerate(sums))

    def sum_features(self) -> tuple[dict[int, FeatureSums], dict[int, str]]:
        return self._sums, {9: "away"}


def test_the_first_model_carries_the_centring_and_a_line_says_so():
    clients = Summed(HONEST, feature_sums(np.array([[5.0, 0.0]])))
    model, left_out, about = centre_model(np.zeros(1, np.float32), Carrying(), clients, "mean", 3)
    assert model.tolist() == [0, 3, 2]
    assert left_out == {9: "away"}
    assert about == "inputs centred (mean) by 3 rows of 2 clients, 64 bytes up; mean input 2.5"
    with pytest.raises(RunFailed, match="no client sent valid sums"):
        centre_model(model, Carrying(), Summed(), "mean", 3)
    for learner, centre, message in ((SoftmaxLearner(), "mean", "a method `centred`"), (Carrying(), "half", "one of")):
        with pytest.raises(ConfigError, match=message):
            centre_model(model, learner, clients, centre, 3)


def test_where_no_sums_have_a_length_all_are_left_out():
    square = FeatureSums(2, np.zeros((1, 2)), np.zeros((1, 2)))
    assert check_sums(({4: square}, {})) == (
        {},
        {4: "its sums have shape (1, 2) and (1, 2); those of most clients have (0,)"},
    )


def test_of_no_rows_all_sums_are_zero():
    nothing = feature_sums(np.empty((0, 2, 3)))
    assert (nothing.rows, nothing.sums.tolist(), nothing.squares.tolist()) == (0, [0] * 6, [0] * 6)
    assert feature_sums(np.ones((4, 2, 3))).sums.tolist() == [4] * 6
