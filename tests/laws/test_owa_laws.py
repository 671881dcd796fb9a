"""What holds of means: weighted, ordered, by quantifier [Yager 1988] [Yager 1996]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import QUANTIFIER, rows, shares, tables

from fedmerit import OWA, WeightedMean
from fedmerit.core.weights.scores import Power, QuantifierOWA

ROUNDING = 1e-9


@given(st.data(), tables())
def test_owa_lies_between_worst_and_best(data, table):
    m = table.shape[1]
    choices = [
        shares(m).map(OWA),
        st.builds(QuantifierOWA, QUANTIFIER, shares(m)),
        st.builds(QuantifierOWA, QUANTIFIER),
    ]
    scores = data.draw(st.one_of(choices))(table)
    assert (scores >= table.min(axis=1) - ROUNDING).all()
    assert (scores <= table.max(axis=1) + ROUNDING).all()


@given(tables())
def test_owa_knows_maximum_minimum_and_mean(table):
    m = table.shape[1]
    first, last = np.eye(m)[0], np.eye(m)[-1]
    assert (OWA(tuple(first))(table) == table.max(axis=1)).all()
    assert (OWA(tuple(last))(table) == table.min(axis=1)).all()
    assert OWA((1 / m,) * m)(table) == pytest.approx(table.mean(axis=1))
    assert WeightedMean()(table) == pytest.approx(table.mean(axis=1))


@given(st.data(), tables())
def test_owa_does_not_know_which_criterion_is_which(data, table):
    order = data.draw(st.permutations(range(table.shape[1])))
    operator = data.draw(st.one_of(shares(table.shape[1]).map(OWA), st.builds(QuantifierOWA, QUANTIFIER)))
    assert operator(table[:, order]) == pytest.approx(operator(table), rel=1e-12)


@given(QUANTIFIER, tables(), st.floats(0.1, 100))
def test_equal_importances_are_no_importances(quantifier, table, importance):
    equal = QuantifierOWA(quantifier, (importance,) * table.shape[1])
    assert equal(table) == pytest.approx(QuantifierOWA(quantifier)(table), abs=ROUNDING)


@given(QUANTIFIER, st.data(), st.integers(2, 4))
def test_a_criterion_without_importance_does_not_count(quantifier, data, m):
    row = data.draw(rows(m))
    importances = (0.0, *data.draw(shares(m - 1)))
    without = QuantifierOWA(quantifier, importances[1:])(row[np.newaxis, 1:])
    assert QuantifierOWA(quantifier, importances)(row[np.newaxis]) == pytest.approx(without, abs=ROUNDING)


@given(st.data(), tables())
def test_power_1_with_importances_is_the_weighted_mean(data, table):
    weights = data.draw(shares(table.shape[1]))
    assert QuantifierOWA(Power(1), weights)(table) == pytest.approx(WeightedMean(weights)(table), abs=ROUNDING)


@given(st.data(), st.integers(1, 4))
def test_a_better_value_never_lowers_a_mean(data, m):
    row, place = data.draw(rows(m)), data.draw(st.integers(0, m - 1))
    higher = row.copy()
    higher[place] = data.draw(st.floats(row[place], 1))
    operator = data.draw(st.one_of(shares(m).map(WeightedMean), shares(m).map(OWA)))
    low, high = operator(np.array([row, higher]))
    assert high >= low - ROUNDING
