"""Rows that lie apart: in pieces that begin where BLAS begins its groups, each row once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import cython_blas

from fedmerit.core import apart
from fedmerit.core.apart import GROUP, find_add, pieces_of
from fedmerit.core.updates import Updates


@given(st.lists(st.integers(0, 60), unique=True, max_size=60))
def test_pieces_hold_every_place_once_and_begin_at_groups(chosen: list[int]) -> None:
    pieces = pieces_of(np.array(chosen, dtype=np.intp))
    held = [row for _, runs in pieces for run in runs for row in range(run.start, run.stop)]
    assert held == chosen
    assert [which.start for which, _ in pieces] == [0, *(which.stop for which, _ in pieces)][: len(pieces)]
    assert all(which.start % GROUP == 0 for which, _ in pieces)
    assert all(which.stop - which.start <= GROUP for which, runs in pieces if len(runs) > 1)


def test_one_client_left_out_of_many_copies_eight_rows_at_most() -> None:
    pieces = pieces_of(np.delete(np.arange(100), 37))
    assert sum(which.stop - which.start for which, runs in pieces if len(runs) > 1) <= GROUP
    assert len(pieces) <= 3


def test_a_blas_that_does_not_show_its_product_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cython_blas, "__pyx_capi__", {})
    assert find_add.__wrapped__() is None


def test_a_product_that_adds_in_another_order_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_order(rows: int, apart: int, height: int, width: int, weights: int, out: int) -> None:
        for row in reversed(range(height)):
            add(rows + 4 * apart * row, apart, 1, width, weights + 4 * row, out)

    add = find_add()
    assert add is not None

    monkeypatch.setattr(apart, "_from_capsule", lambda _: other_order)
    assert find_add.__wrapped__() is None


@pytest.mark.parametrize(("height", "width"), [(10, 150_000), (48, 49_152), (60, 66_112)])
def test_few_rows_with_a_gap_add_up_as_those_without(height: int, width: int) -> None:
    """Up to 48 rows of up to 16,384 columns are added in another order on AVX-512."""
    random = np.random.default_rng(1)
    rows = random.standard_normal((height + 1, width), dtype=np.float32)
    places, weights = np.delete(np.arange(height + 1), height // 2 + 1), random.random(height)
    assert np.array_equal(Updates(rows, places).combine(weights), Updates(rows[places]).combine(weights))
