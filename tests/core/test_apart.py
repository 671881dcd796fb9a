"""Rows that lie apart: in pieces that begin where BLAS begins its groups, each row once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import cython_blas

from fedmerit.core import apart
from fedmerit.core.apart import GROUP, add_up, find_add, pieces_of


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
    def other_order(rows: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
        out += (weights[:, np.newaxis] * rows)[::-1].sum(axis=0)

    monkeypatch.setattr(apart, "_from_capsule", lambda _: other_order)
    assert find_add.__wrapped__() is None


def add(rows: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    out += weights @ rows


@given(st.lists(st.integers(0, 40), unique=True, max_size=41).map(sorted), st.integers(1, 5))
def test_pieces_add_up_to_the_weighted_sum_of_their_rows(chosen: list[int], length: int) -> None:
    rows = np.arange(41 * length, dtype=np.float32).reshape(41, length)  # whole numbers: exact in any order
    weights, out, spare = np.arange(1, len(chosen) + 1, dtype=np.float32), np.full(length, 7, np.float32), []
    for _ in range(2):  # the second time with the first one's buffer
        add_up(add, rows, pieces_of(np.array(chosen, dtype=np.intp)), weights, out, spare)
        np.testing.assert_array_equal(out, weights @ rows[chosen])
    assert len(spare) == 1
