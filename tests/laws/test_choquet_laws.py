"""What holds of capacities and the Choquet integral [Choquet] [Grabisch 1997]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import capacities, names, rows, shares, tables, two_additive

from fedmerit import OWA, Choquet, WeightedMean, weigh
from fedmerit.core.weights.capacity import Capacity

ROUNDING = 1e-9
WIDTH = st.integers(1, 4)


@given(st.data(), tables())
def test_an_additive_capacity_is_a_weighted_mean(data, table):
    weights = data.draw(shares(table.shape[1]))
    assert Choquet(Capacity.additive(weights))(table) == pytest.approx(WeightedMean(weights)(table), abs=ROUNDING)


@given(st.data(), tables())
def test_a_symmetric_capacity_is_an_owa(data, table):
    weights = data.draw(shares(table.shape[1]))
    assert Choquet(Capacity.symmetric(weights))(table) == pytest.approx(OWA(weights)(table), abs=ROUNDING)


@given(st.data(), tables())
def test_the_integral_equals_its_moebius_form(data, table):
    """sum over T of m(T) * min of T, with mu(S) = sum over T in S of m(T)."""
    m = table.shape[1]
    capacity = data.draw(capacities(m))
    moebius = list(capacity.values)
    for i in range(m):
        moebius = [value - moebius[mask ^ 1 << i] if mask >> i & 1 else value for mask, value in enumerate(moebius)]
    members = [[i for i in range(m) if mask >> i & 1] for mask in range(2**m)]
    by_moebius = sum(moebius[mask] * table[:, members[mask]].min(axis=1) for mask in range(1, 2**m))
    assert Choquet(capacity)(table) == pytest.approx(by_moebius, abs=ROUNDING)


@given(st.data(), WIDTH)
def test_shapley_values_are_shares(data, m):
    shapley = data.draw(capacities(m)).shapley()
    assert shapley.sum() == pytest.approx(1)
    assert (shapley >= -ROUNDING).all()


@given(st.data(), WIDTH)
def test_shapley_of_an_additive_capacity_are_its_weights(data, m):
    weights = data.draw(shares(m))
    capacity = Capacity.additive(weights)
    assert capacity.shapley() == pytest.approx(weights, abs=ROUNDING)
    assert capacity.interaction() == pytest.approx(np.zeros((m, m)), abs=ROUNDING)


@given(st.data(), st.integers(2, 4))
def test_two_additive_gives_shapley_and_interaction_back(data, m):
    phi, pairs = data.draw(two_additive(m))
    capacity = Capacity.two_additive(phi, pairs)
    assert capacity.shapley() == pytest.approx(phi, abs=ROUNDING)
    table = capacity.interaction()
    assert {pair: table[pair] for pair in pairs} == pytest.approx(pairs, abs=ROUNDING)


@given(st.data(), st.integers(2, 4))
def test_two_additive_integral_has_a_closed_form(data, m):
    phi, pairs = data.draw(two_additive(m))
    row = data.draw(rows(m))
    together = sum(v * min(row[i], row[j]) for (i, j), v in pairs.items() if v > 0)
    instead = sum(-v * max(row[i], row[j]) for (i, j), v in pairs.items() if v < 0)
    alone = sum(row[i] * (phi[i] - sum(abs(v) for pair, v in pairs.items() if i in pair) / 2) for i in range(m))
    found = Choquet(Capacity.two_additive(phi, pairs))(row[np.newaxis])
    assert found == pytest.approx([together + instead + alone], abs=ROUNDING)


@given(st.data(), tables())
def test_the_integral_lies_between_worst_and_best(data, table):
    scores = Choquet(data.draw(capacities(table.shape[1])))(table)
    assert (scores >= table.min(axis=1) - ROUNDING).all()
    assert (scores <= table.max(axis=1) + ROUNDING).all()


@given(st.data(), WIDTH)
def test_a_better_value_never_lowers_the_integral(data, m):
    row, place = data.draw(rows(m)), data.draw(st.integers(0, m - 1))
    higher = row.copy()
    higher[place] = data.draw(st.floats(row[place], 1))
    low, high = Choquet(data.draw(capacities(m)))(np.array([row, higher]))
    assert high >= low - ROUNDING


@given(st.data(), tables(columns=2))
def test_weights_of_a_two_additive_capacity_are_shares(data, table):
    phi, pairs = data.draw(two_additive(table.shape[1]))
    weights = weigh(table, names(table), Choquet(Capacity.two_additive(phi, pairs)), "none").weights
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
