"""Updates: sums, lengths and cosines, whatever the size and wherever the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmerit.core import updates as updates_module
from fedmerit.core.updates import Updates

MATRICES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 40)),
    elements=st.floats(-100, 100, width=32),
)


@given(MATRICES)
def test_lengths_sums_and_cosines_are_numpys(rows: np.ndarray) -> None:
    updates = Updates(rows)
    exact = rows.astype(np.float64)
    assert np.allclose(updates.norms, np.linalg.norm(exact, axis=1), rtol=1e-5, atol=1e-6)
    weights = np.linspace(0, 1, len(rows))
    assert np.allclose(updates.combine(weights), weights @ exact, rtol=1e-4, atol=1e-2)
    cosines = updates.cosines()
    assert np.allclose(cosines, cosines.T)
    lengths = np.linalg.norm(exact, axis=1)
    long = lengths > 1e-3
    expected = exact[long] @ exact[long].T / np.outer(lengths[long], lengths[long])
    assert np.allclose(cosines[np.ix_(long, long)], expected, atol=1e-3)


@given(MATRICES, st.data())
def test_keeping_some_is_the_same_as_having_only_them(rows: np.ndarray, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True, min_size=1)), dtype=np.intp)
    rows = rows.copy()
    spoilt = np.setdiff1d(np.arange(len(rows)), places)
    alone = Updates(rows[places])
    rows[spoilt] = np.nan  # what is not kept must not leak into sums
    kept = Updates(rows).keep(places)
    weights = np.linspace(1, 2, len(places))
    assert kept.combine(weights).tobytes() == alone.combine(weights).tobytes()
    assert kept.norms.tobytes() == alone.norms.tobytes()
    assert kept.nbytes == alone.nbytes


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    """Large enough for several blocks and threads."""
    return np.random.default_rng(1).normal(size=(12, 300_001)).astype(np.float32)


def test_threads_and_blocks_change_nothing(large: np.ndarray) -> None:
    updates, weights = Updates(large), np.linspace(0, 1, 12)
    assert np.allclose(updates.combine(weights), weights.astype(np.float32) @ large, atol=1e-4)
    assert updates.combine(weights).tobytes() == Updates(large).combine(weights).tobytes()
    assert np.allclose(updates.norms, np.linalg.norm(large.astype(np.float64), axis=1), rtol=1e-6)
    assert np.allclose(updates.cosines(), np.corrcoef(large), atol=0.01)


def test_several_weightings_in_one_pass_are_each_of_them(large: np.ndarray) -> None:
    weightings = np.random.default_rng(2).random((6, 12))
    together = Updates(large).combine(weightings)
    assert together.shape == (6, large.shape[1])
    for weighting, sums in zip(weightings, together, strict=True):
        assert np.allclose(Updates(large).combine(weighting), sums, atol=1e-5)


def test_a_mapped_file_is_let_go_of_while_it_is_read(large: np.ndarray) -> None:
    import fedmerit.core.updates

    calls: list[int] = []
    updates = Updates(large, release=lambda: calls.append(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedmerit.core.updates, "RELEASE_BYTES", large.nbytes // 4)
        updates.combine(np.ones(12))
    assert 3 <= len(calls) <= 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e30])
def test_bad_values_show_in_the_length(value: float, large: np.ndarray) -> None:
    rows = large.copy()
    rows[3, 77] = value
    lengths = Updates(rows).norms
    assert np.flatnonzero(~np.isfinite(lengths)).tolist() == [3]


@pytest.mark.parametrize("weightings", [1, 6])
@pytest.mark.parametrize(("number", "length"), [(12, 40_001), (70, 26_389), (17, 131_073), (33, 131_074), (40, 70_003)])
def test_wide_rows_add_up_the_same_with_somebody_left_out(number: int, length: int, weightings: int) -> None:
    random = np.random.default_rng(3)
    rows, places = random.normal(size=(number, length)).astype(np.float32), np.delete(np.arange(number), [3, 10])
    rows[3] = np.nan
    weights = random.random((weightings, len(places))).squeeze()
    kept = Updates(rows).keep(places).combine(weights)
    np.testing.assert_array_equal(kept, Updates(rows[places]).combine(weights))
    np.testing.assert_allclose(kept, weights @ rows[places].astype(np.float64), rtol=1e-3, atol=1e-4)


def test_where_blas_adds_in_another_order_rows_with_gaps_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    rows, places = random.normal(size=(20, 131_073)).astype(np.float32), np.delete(np.arange(20), 5)
    weights = random.random(len(places))
    by_pieces = Updates(rows).keep(places).combine(weights)
    monkeypatch.setattr(updates_module, "find_add", lambda: None)
    np.testing.assert_array_equal(Updates(rows).keep(places).combine(weights), by_pieces)
