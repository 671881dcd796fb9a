"""Updates: sums, lengths and cosines, whatever the size and wherever the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

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
@pytest.mark.parametrize("left_out", [[], [3, 10], [0, 11], list(range(1, 11))])
@pytest.mark.parametrize("value", [7.0, 3e30, np.inf, np.nan])
@pytest.mark.parametrize("length", [40, 70_003, 131_073])
def test_who_is_left_out_adds_nothing(length: int, value: float, left_out: list[int], weightings: int) -> None:
    random = np.random.default_rng(3)
    rows, places = random.normal(size=(12, length)).astype(np.float32), np.delete(np.arange(12), left_out)
    rows[left_out] = value
    weights = random.random((weightings, len(places))).squeeze()
    kept = Updates(rows).keep(places)
    np.testing.assert_allclose(kept.combine(weights), weights @ rows[places].astype(np.float64), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(kept.combine(weights), Updates(rows, places).combine(weights))


def test_rows_in_another_order_are_added_up_too() -> None:
    rows = np.random.default_rng(4).normal(size=(5, 100)).astype(np.float32)
    kept = Updates(rows).keep(np.array([4, 1, 2]))
    np.testing.assert_allclose(kept.combine(np.array([1.0, 2.0, 3.0])), rows[4] + 2 * rows[1] + 3 * rows[2], rtol=1e-5)
