"""Facts first: streamed sums have the bits of stored ones, drop-outs are divided out, integers stay in bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.collect.facts_first import add_uploads
from fedmerit.core.collect.masking import (
    LARGEST_SUM,
    UNITS,
    Masking,
    add_unmasked,
    as_integers,
    in_units,
    read_total,
)
from fedmerit.core.updates import COLUMNS, Updates

VALUES = st.floats(-100, 100, width=32)


@st.composite
def weighted_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    clients = draw(st.integers(1, 12))
    rows = draw(arrays(np.float32, (clients, draw(st.integers(1, 9))), elements=VALUES))
    weights = draw(arrays(np.float64, clients, elements=st.floats(0, 1)))
    total = weights.sum()
    return rows, weights / total if total > 1e-6 else np.full(clients, 1 / clients)


@given(weighted_rows(), st.randoms())
def test_a_streamed_sum_has_the_bits_of_a_stored_one(made: tuple[np.ndarray, np.ndarray], random):
    rows, weights = made
    stored = Updates(rows).combine(weights)
    factors = dict(enumerate(weights.tolist()))
    added = add_uploads(((client, rows[client]) for client in factors), factors, rows.shape[1])
    assert added.mean.tobytes() == stored.tobytes()
    assert added.bytes_up == rows.nbytes
    # The places of rows in memory and the rows between them do not count either.
    order = list(range(len(rows)))
    random.shuffle(order)
    mixed = np.full((len(rows) + 1, rows.shape[1]), np.nan, np.float32)
    mixed[order] = rows
    assert Updates(mixed, np.array(order)).combine(weights).tobytes() == stored.tobytes()


def test_the_bits_of_a_sum_depend_neither_on_blocks_nor_on_threads():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(9, 5 * COLUMNS * 8 + 77)).astype(np.float32)
    weights = generator.dirichlet(np.ones(9))
    by_value = np.zeros(rows.shape[1], np.float32)
    for row, weight in zip(rows, weights, strict=True):
        by_value += row * np.float32(weight)
    assert Updates(rows).combine(weights).tobytes() == by_value.tobytes()
    np.testing.assert_allclose(by_value, weights @ rows.astype(np.float64), atol=1e-6)


def test_clients_that_fail_at_the_upload_are_divided_out():
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    uploads = [(0, rows[0]), (1, np.full(3, np.inf, np.float32)), (2, rows[2][:2]), (3, rows[3])]
    added = add_uploads(uploads, dict.fromkeys(range(4), 0.25), 3)
    assert added.failed == {
        1: "update contains NaN, infinity or values too large to square",
        2: "update has shape (2,), but the model has 3 values",
    }
    assert added.total.tolist() == ((rows[0] + rows[3]) * 0.25).tolist()
    assert added.mean.tolist() == ((rows[0] + rows[3]) * 0.5).tolist()


def test_a_sum_that_nobody_uploads_for_is_zero():
    added = add_uploads([(0, "away")], {0: 1.0}, 2)
    assert (added.mean.tolist(), added.failed) == ([0.0, 0.0], {0: "away"})


@given(weighted_rows(), st.floats(0.5, 1000), st.booleans())
def test_integers_stay_in_the_field_and_in_the_stated_error(
    made: tuple[np.ndarray, np.ndarray], clip: float, unbiased: bool
):
    rows, weights = made
    units, masking = in_units(dict(enumerate(weights.tolist()))), Masking(clip, unbiased)
    result = add_unmasked(((client, rows[client]) for client in units), 1, units, masking, rows.shape[1])
    exact = np.zeros(rows.shape[1])
    for client, number in units.items():
        norm = np.linalg.norm(rows[client].astype(np.float64))
        exact += number / sum(units.values()) * min(1.0, clip / norm if norm else 1.0) * rows[client].astype(np.float64)
    scale = masking.scale(units.values())
    assert abs(result.total[:-1].view(np.int32).astype(np.float64)).max() <= LARGEST_SUM
    mean = result.total[:-1].view(np.int32) / (scale * sum(units.values()))
    assert abs(mean - exact).max() <= masking.error_bound(len(units)) + 1e-6 * clip
    clipped = sum(np.linalg.norm(rows[client].astype(np.float64)) > clip * (1 + 1e-6) for client in units)
    assert int(result.total[-1]) >= clipped


@given(arrays(np.float32, 7, elements=VALUES), st.integers(1, UNITS), st.floats(0.1, 10))
def test_a_client_is_never_longer_than_its_clip(update: np.ndarray, units: int, clip: float):
    scale = Masking(clip).scale([UNITS, UNITS])
    integers = as_integers(update, units, scale, clip)[:-1].view(np.int32).astype(np.float64)
    assert np.linalg.norm(integers) <= units * scale * clip * (1 + 1e-6)


def test_too_few_uploads_and_impossible_sums_change_nothing():
    units, masking = {0: 5, 1: 5, 2: 5, 3: 5}, Masking(1.0)
    row = np.full(4, 0.1, np.float32)
    some = add_unmasked([(0, row), (1, row), (2, "away"), (3, "away")], 1, units, masking, 4)
    read = read_total(some, units, masking)
    assert not read.total.any()
    assert read.failed[0] == "only 2 of 4 clients uploaded; a masked sum needs 3"
    assert read.failed[2] == "away"
    whole = add_unmasked([(client, row) for client in units], 1, units, masking, 4)
    assert not read_total(whole, units, masking).failed
    whole.total[:-1] += 1 << 30  # a client that sends something else than its update
    assert "longer than its parts" in read_total(whole, units, masking).failed[0]


def test_the_stated_error_grows_with_the_weight_of_drop_outs():
    units, masking = {0: 90, 1: 5, 2: 5, 3: 5}, Masking(1.0, unbiased=False)
    row = np.full(4, 0.1, np.float32)
    whole = read_total(add_unmasked([(one, row) for one in units], 1, units, masking, 4), units, masking)
    some = add_unmasked([(0, "away"), *((one, row) for one in (1, 2, 3))], 1, units, masking, 4)
    left = read_total(some, units, masking)
    assert whole.numbers["error"] == pytest.approx(masking.error_bound(4))
    assert left.numbers["error"] == pytest.approx(masking.error_bound(3) * 105 / 15, rel=1e-6)


def test_a_client_without_a_finite_update_is_dropped_before_it_sends_integers():
    with pytest.raises(ValueError, match="NaN, infinity"):
        as_integers(np.array([1.0, np.nan], np.float32), 1, 1.0, 1.0)


def test_rounding_at_random_has_no_bias_and_its_errors_cancel():
    row, clients = np.full(50, 3e-4, np.float32), 2000
    units = dict.fromkeys(range(clients), UNITS // clients)
    errors = {}
    for unbiased in (True, False):
        masking = Masking(100.0, unbiased)
        read = read_total(add_unmasked(((one, row) for one in units), 1, units, masking, 50), units, masking)
        errors[unbiased] = float(abs(read.mean - row).max())
        assert errors[unbiased] <= masking.error_bound(clients)
    assert errors[True] < 5 * np.sqrt(clients) * 100 / 2**32
    assert errors[True] < errors[False] / 5
