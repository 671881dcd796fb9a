"""The noised mean input: by hand, and how far one client moves it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.server.centring import feature_sums
from fedmerit.core.server.private_sum import CentreNoise, PrivateSum

INPUTS = arrays(np.float64, st.tuples(st.integers(1, 5), st.just(3)), elements=st.floats(-9, 9))


@given(st.lists(INPUTS, min_size=2, max_size=5), st.floats(0.1, 20))
def test_one_client_moves_the_sum_by_at_most_the_clip(inputs: list[np.ndarray], clip: float) -> None:
    sums, noise = {client: feature_sums(rows) for client, rows in enumerate(inputs)}, CentreNoise(1.0, clip)
    moved = noise.total(sums) - noise.total({client: one for client, one in sums.items() if client})
    assert np.linalg.norm(moved) <= clip * (1 + 1e-9)


def test_a_client_reports_the_mean_of_its_rows_however_many() -> None:
    """Means (3, 4) and (0, 2); a clip of 2.5 halves the first, one of 5 cuts nobody."""
    sums = {1: feature_sums(np.array([[0.0, 1.0], [0.0, 3.0]])), 0: feature_sums(np.array([[3.0, 4.0]] * 3))}
    assert CentreNoise(1.0, clip=5.0).total(sums) == pytest.approx([3, 6])
    assert CentreNoise(1.0, clip=2.5).total(sums) == pytest.approx([1.5, 4])


def test_the_mean_by_hand_has_a_fixed_denominator_and_its_noise() -> None:
    sums = {0: feature_sums(np.array([[3.0, 4.0]])), 1: feature_sums(np.array([[0.0, 1.0], [0.0, 3.0]]))}
    quiet = PrivateSum(1.0, 0.5, reproducible=True, centre=CentreNoise(1e-9, clip=1.0))
    assert quiet.make_centring(4, seed=1)(sums, "mean").mean == pytest.approx([0.6 / 4, 1.8 / 4])  # two did not answer
    loud = PrivateSum(1.0, 0.5, centre=CentreNoise(4.0, clip=1.0))
    released = [loud.make_centring(4, seed=1)(sums, "mean").mean for _ in range(200)]
    assert np.std(released, axis=0) == pytest.approx([1.0, 1.0], rel=0.3)  # 4 * 1 / 4
