"""What holds of weights and notes whatever the criteria, the operator and the scale are, and where they are zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tables import COUNT, DEGREE, EXTREME, NORMALISE, names, operators, tables

from fedmerit import CB, DS, Prioritized, Product, fedavg, prioritized, weigh
from fedmerit.core.search.search import earn
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates


def assert_shares(weights: np.ndarray) -> None:
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-9)


@given(st.data(), tables(EXTREME), NORMALISE)
def test_weights_are_shares_up_to_the_ends_of_the_number_range(data, raw, normalise):
    score = data.draw(operators(raw.shape[1]))
    result = weigh(raw, names(raw), score, normalise)
    assert_shares(result.weights)
    assert np.isfinite(result.scores).all()
    assert ((result.table >= 0) & (result.table <= 1)).all()


@given(st.data(), tables(DEGREE))
def test_weights_of_degrees_are_shares_without_normalising(data, raw):
    assert_shares(weigh(raw, names(raw), data.draw(operators(raw.shape[1])), "none").weights)


@given(st.data(), tables(EXTREME), NORMALISE)
def test_weights_are_scores_in_proportion(data, raw, normalise):
    result = weigh(raw, names(raw), data.draw(operators(raw.shape[1])), normalise)
    if result.scores.sum() > 1e-200:
        assert result.weights == pytest.approx(result.scores / result.scores.sum(), rel=1e-9)


@given(st.data(), tables(COUNT, least=2), st.sampled_from(["sum", "max"]))
def test_permuting_the_clients_permutes_the_weights(data, raw, normalise):
    score = data.draw(operators(raw.shape[1], continuous=True))
    order = data.draw(st.permutations(range(len(raw))))
    result, permuted = (weigh(rows, names(raw), score, normalise) for rows in (raw, raw[order]))
    assert permuted.weights == pytest.approx(result.weights[order], rel=1e-9)
    assert {note.kind for note in permuted.notes} == {note.kind for note in result.notes}


@given(st.data(), tables(COUNT), NORMALISE)
def test_the_unit_of_a_criterion_does_not_matter(data, raw, normalise):
    score = data.draw(operators(raw.shape[1], continuous=True))
    factors = data.draw(arrays(np.float64, raw.shape[1], elements=st.floats(1e-6, 1e6)))
    assert weigh(raw * factors, names(raw), score, normalise).weights == pytest.approx(
        weigh(raw, names(raw), score, normalise).weights, rel=1e-6
    )


@given(tables(COUNT), NORMALISE)
def test_the_table_is_the_raw_values_on_one_scale(raw, normalise):
    table = weigh(raw, names(raw), Prioritized(), normalise).table
    scale = table.sum(axis=0) if normalise == "sum" else table.max(axis=0)
    assert scale == pytest.approx(np.ones(raw.shape[1]))
    for before, after in zip(raw.T, table.T, strict=True):
        if before.any():
            assert after * before.max() == pytest.approx(before * after.max())


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), NORMALISE)
def test_prioritized_by_size_alone_is_fedavg(sizes, normalise):
    samples = np.array(sizes, dtype=float)
    updates = Updates(np.zeros((len(sizes), 1), dtype=np.float32))
    round = Cohort(1, tuple(range(len(sizes))), updates, {"samples": samples})
    for recipe in (prioritized(DS, normalise=normalise), fedavg()):
        assert earn(recipe, round, History()).weights == pytest.approx(samples / samples.sum())


@given(st.data(), tables(EXTREME), NORMALISE)
def test_weighing_leaves_the_callers_table_alone(data, raw, normalise):
    before = raw.copy()
    result = weigh(raw, names(raw), data.draw(operators(raw.shape[1])), normalise)
    assert (raw == before).all()
    assert (result.raw == before).all()


def kinds(result) -> list[str]:
    return [note.kind for note in result.notes]


@given(st.data(), tables(COUNT, columns=2), NORMALISE)
def test_a_column_of_zeros_carries_no_information(data, raw, normalise):
    place = data.draw(st.integers(0, raw.shape[1] - 1))
    raw[:, place] = 0
    result = weigh(raw, names(raw), Product(), normalise)
    assert (result.table[:, place] == result.table[0, place]).all()
    assert result.table[0, place] == pytest.approx(1 / len(raw) if normalise == "sum" else 1)
    without = np.delete(raw, place, axis=1)
    expected = weigh(without, names(without), Product(), normalise).weights
    assert result.weights == pytest.approx(expected, rel=1e-9)


@given(tables(COUNT, least=2), NORMALISE)
def test_a_column_of_zeros_is_noted_once_with_its_name(raw, normalise):
    raw[:, 0] = 0
    result = weigh(raw, names(raw), Prioritized(), normalise)
    assert [note.subject for note in result.notes if note.kind == "empty-criterion"].count("c0") == 1


def one_class_round() -> Cohort:
    """Two clients, each with one class only: CB is 0 for both."""
    facts = {"samples": np.array([10.0, 30.0]), "balance": np.zeros(2)}
    return Cohort(1, (0, 1), Updates(np.ones((2, 3), dtype=np.float32)), facts)


def test_recipes_fall_back_to_samples():
    result = earn(prioritized(CB, normalise="none"), one_class_round(), History())
    assert result.weights.tolist() == [0.25, 0.75]
    assert "zero-scores" in kinds(result)


def test_zero_columns_are_no_zero_scores_once_normalised():
    result = earn(prioritized(CB, DS, normalise="sum"), one_class_round(), History())
    assert result.weights == pytest.approx([(1 + 0.25) / 3, (1 + 0.75) / 3])
