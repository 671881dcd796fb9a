"""Observations: lengths and cosines against the definition, whatever the number of rows."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fedmerit.core.updates import Updates, diagnose


def by_definition(rows: np.ndarray) -> list[float]:
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    others = units.sum(axis=0) - units
    return [float(unit @ other / np.linalg.norm(other)) for unit, other in zip(units, others, strict=True)]


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(3, 50), st.integers(0, 99))
def test_cosines_are_those_with_the_sum_of_the_others_directions(clients: int, length: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(clients, length)).astype(np.float32)
    seen = diagnose(Updates(rows))
    assert seen.norms == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-5)
    assert seen.cosines == pytest.approx(by_definition(rows.astype(np.float64)), abs=1e-4)


def test_a_long_update_has_one_voice() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    before = diagnose(Updates(rows.copy())).cosines
    rows[0] *= 1e4
    assert diagnose(Updates(rows)).cosines == pytest.approx(before, abs=1e-4)


def test_zeros_and_single_updates_have_no_direction() -> None:
    rows = np.array([[0, 0], [1, 0], [2, 1]], np.float32)
    assert np.isnan(diagnose(Updates(rows)).cosines).tolist() == [True, False, False]
    assert np.isnan(diagnose(Updates(rows[1:2])).cosines).all()
    assert diagnose(Updates(rows[:0])).norms.tolist() == []


def test_equal_updates_go_no_further_than_all_the_way_together() -> None:
    for seed in range(20):  # rounding alone would bring half of these above 1
        rows = np.random.default_rng(seed).normal(size=(1, 7)).astype(np.float32)
        assert diagnose(Updates(np.repeat(rows, 3, axis=0))).cosines.max() <= 1
        assert diagnose(Updates(np.concatenate([rows, -rows, -rows]))).cosines[0] >= -1
