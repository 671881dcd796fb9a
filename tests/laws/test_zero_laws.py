"""What happens where criteria or scores are zero [PMCFL, eq. 8]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import COUNT, NORMALISE, names, tables

from fedmerit import CB, DS, Prioritized, Product, prioritized, weigh
from fedmerit.core.search.search import earn
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates


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


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_all_scores_zero_fall_back_to_the_given_weights(samples):
    fallback = np.array(samples, dtype=float)
    result = weigh(np.zeros((len(samples), 1)), ["CB"], Prioritized(), "none", fallback)
    assert (result.scores == 0).all()
    assert result.weights == pytest.approx(fallback / fallback.sum())
    assert "zero-scores" in kinds(result)


def one_class_round() -> Cohort:
    """Two clients, each with one class only: CB is 0 for both."""
    facts = {"samples": np.array([10.0, 30.0]), "balance": np.zeros(2)}
    return Cohort(1, (0, 1), Updates(np.ones((2, 3), dtype=np.float32)), facts)


def test_recipes_fall_back_to_samples():
    result = earn(prioritized(CB, normalise="none"), one_class_round(), History())
    assert result.weights.tolist() == [0.25, 0.75]
    assert "zero-scores" in kinds(result)


def test_recipes_may_keep_the_model_instead():
    result = earn(prioritized(CB, normalise="none", when_zero="keep"), one_class_round(), History())
    assert result.weights.tolist() == [0, 0]
    assert "zero-weights" in kinds(result)
    assert any("the model stays" in note.text for note in result.notes)


def test_zero_columns_are_no_zero_scores_once_normalised():
    result = earn(prioritized(CB, DS, normalise="sum"), one_class_round(), History())
    assert result.weights == pytest.approx([(1 + 0.25) / 3, (1 + 0.75) / 3])
