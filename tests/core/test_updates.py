"""Updates: sums, lengths and cosines, whatever the size and wherever the rows lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmerit.core.updates import Updates, cosines_of, diagnose

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
        calls.clear()
        patch.setattr(fedmerit.core.updates, "RELEASE_BYTES", large.nbytes // 2)
        updates.combine(np.ones(12))
        assert len(calls) == 1, "not after every block"
        Updates(large).combine(np.ones(12))  # rows in memory have nothing to let go of
        calls.clear()
        narrow = np.ones((12, 100), np.float32)
        patch.setattr(fedmerit.core.updates, "SMALL_BYTES", 0)
        patch.setattr(fedmerit.core.updates, "RELEASE_BYTES", narrow.nbytes)
        Updates(narrow, release=lambda: calls.append(1)).combine(np.ones(12))
        assert len(calls) == 1, "one block of so many bytes"


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


@given(
    st.integers(1, 5), st.integers(1, 30), st.lists(st.sampled_from(["keep", "scale", "mix"]), max_size=4), st.data()
)
def test_whatever_was_kept_mixed_and_remembered_it_is_as_if_rows_were_written_out(
    number: int, length: int, ways: list[str], data: st.DataObject
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows = random.normal(size=(number + 2, length)).astype(np.float32)
    updates, exact = Updates(rows), rows.astype(np.float64)
    for way in ways:
        for known in data.draw(st.sets(st.sampled_from(["norms", "products"]))):
            getattr(updates, known)
        if way == "keep":
            places = random.permutation(len(updates))[: max(1, len(updates) - 1)]
            updates, exact = updates.keep(places), exact[places]
        elif way == "scale":
            factors = random.normal(size=len(updates))
            updates, exact = updates.mix(factors), factors[:, np.newaxis] * exact
        else:
            factors = random.normal(size=(random.integers(1, 4), len(updates)))
            updates, exact = updates.mix(factors), factors @ exact
    vector, weights = rows[0], random.normal(size=(2, len(updates)))
    lengths, far = np.linalg.norm(exact, axis=1), np.linalg.norm(vector)
    near = {"rtol": 1e-3, "atol": 1e-4 * float(1 + lengths.max()) ** 2}  # mixtures of mixtures may be long
    assert len(updates) == len(exact)
    assert (updates.length, updates.nbytes) == (length, 4 * exact.size)
    for again in (updates, updates.renewed()):
        np.testing.assert_allclose(again.norms, lengths, **near)
        np.testing.assert_allclose(again.products, exact @ exact.T, **near)
        np.testing.assert_allclose(again.combine(weights), weights @ exact, **near)
        np.testing.assert_allclose(again.row(0), exact[0], **near)
        np.testing.assert_allclose(again.dots(vector), exact @ vector, **near)
        np.testing.assert_allclose(again.cosines_to(vector) * lengths * far, exact @ vector, **near)
        np.testing.assert_allclose(again.cosines() * np.outer(lengths, lengths), exact @ exact.T, **near)
        np.testing.assert_allclose(again.distances(vector), np.linalg.norm(exact - vector, axis=1), **near)
        apart = np.square(exact[:, np.newaxis] - exact).sum(axis=2)
        np.testing.assert_allclose(again.squared_distances, apart, **near)
        np.testing.assert_allclose(again.by_columns(lambda block: block.sum(axis=0)), exact.sum(axis=0), **near)


def test_zeros_have_no_direction_and_no_distance_to_themselves() -> None:
    updates = Updates(np.array([[0, 0], [3, 4]], np.float32))
    assert updates.cosine_distances().tolist() == [[0, 1], [1, 0]]
    assert updates.cosines_to(np.array([6, 8], np.float32)).tolist() == [0, 1]
    assert updates.cosines_to(np.zeros(2, np.float32)).tolist() == [0, 0]
    assert updates.squared_distances.tolist() == [[0, 25], [25, 0]]


def test_no_cosine_is_beyond_1_by_rounding():
    rows = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    same = [float(Updates(row[np.newaxis]).cosines_to(row)[0]) for row in rows]
    against = [float(Updates(row[np.newaxis]).cosines_to(-row)[0]) for row in rows]
    assert (max(same), min(against)) == (1, -1)
    products = np.array([[1.0, 1 + 1e-9, -1 - 1e-9], [1 + 1e-9, 1.0, 0.5], [-1 - 1e-9, 0.5, 1.0]])
    assert cosines_of(products).tolist() == [[1, 1, -1], [1, 1, 0.5], [-1, 0.5, 1]]


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
