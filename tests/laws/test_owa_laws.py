"""What holds of means: weighted, ordered and by Choquet [Yager 1988] [Choquet]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import choquets, rows, shares, tables

from fedmerit import OWA, WeightedMean

ROUNDING = 1e-9


@given(st.data(), tables())
def test_owa_lies_between_worst_and_best(data, table):
    scores = OWA(data.draw(shares(table.shape[1])))(table)
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
    operator = OWA(data.draw(shares(table.shape[1])))
    assert operator(table[:, order]) == pytest.approx(operator(table), rel=1e-12)


@given(st.data(), st.integers(1, 4))
def test_a_better_value_never_lowers_a_mean(data, m):
    row, place = data.draw(rows(m)), data.draw(st.integers(0, m - 1))
    higher = row.copy()
    higher[place] = data.draw(st.floats(row[place], 1))
    operator = data.draw(st.one_of(shares(m).map(WeightedMean), shares(m).map(OWA), choquets(m)))
    low, high = operator(np.array([row, higher]))
    assert high >= low - ROUNDING
