"""What holds of means: weighted, ordered and the 2-additive Choquet integral [Yager 1988] [Choquet] [Grabisch 1997]."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import choquets, names, rows, shares, tables

from fedmerit import OWA, Choquet, WeightedMean, weigh

ROUNDING = 1e-9


@given(st.data(), tables())
def test_without_interaction_it_is_the_weighted_mean(data, table):
    weights = data.draw(shares(table.shape[1]))
    assert Choquet(weights)(table) == pytest.approx(WeightedMean(weights)(table), abs=ROUNDING)


def capacity_of(score: Choquet) -> dict[frozenset[int], float]:
    """mu(S), the sum of the Moebius transform over the parts of S: phi_i - 1/2 sum_j I_ij of one, I_ij of a pair."""
    alone = [
        phi - sum(value for i, j, value in score.interaction if place in (i, j)) / 2
        for place, phi in enumerate(score.shapley)
    ]
    coalitions = [frozenset(c) for size in range(len(alone) + 1) for c in combinations(range(len(alone)), size)]
    return {
        c: sum(alone[i] for i in c) + sum(value for i, j, value in score.interaction if {i, j} <= c) for c in coalitions
    }


@given(st.data(), st.integers(1, 4))
def test_it_is_the_integral_of_its_capacity(data, m):
    """sum_k (c_(k) - c_(k-1)) mu of the criteria with at least c_(k), values rising [Choquet]; mu is monotone."""
    score, row = data.draw(choquets(m)), data.draw(rows(m))
    capacity, order = capacity_of(score), np.argsort(row, kind="stable")
    steps = np.diff(row[order], prepend=0.0)
    integral = sum(step * capacity[frozenset(order[k:].tolist())] for k, step in enumerate(steps))
    assert score(row[np.newaxis]) == pytest.approx([integral], abs=ROUNDING)
    assert capacity[frozenset(range(m))] == pytest.approx(1)
    assert all(capacity[c | {i}] >= value - ROUNDING for c, value in capacity.items() for i in range(m))


@given(st.data(), st.integers(1, 4))
def test_a_shapley_value_is_the_mean_gain_of_a_criterion(data, m):
    score = data.draw(choquets(m))
    capacity = capacity_of(score)
    for i, phi in enumerate(score.shapley):
        gains = [(capacity[c | {i}] - value) / math.comb(m - 1, len(c)) for c, value in capacity.items() if i not in c]
        assert sum(gains) / m == pytest.approx(phi, abs=ROUNDING)


@given(st.data(), tables())
def test_it_lies_between_worst_and_best_and_gives_shares(data, table):
    score = data.draw(choquets(table.shape[1]))
    scores, weights = score(table), weigh(table, names(table), score, "none").weights
    assert (scores >= table.min(axis=1) - ROUNDING).all()
    assert (scores <= table.max(axis=1) + ROUNDING).all()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)


def test_at_the_edge_of_monotony_no_weight_is_negative():
    score = Choquet((0.15, 0.5, 0.35), ((0, 1, 0.1), (0, 2, 0.2)))  # 0.15 = (0.1 + 0.2) / 2
    only_first = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    assert score(only_first).tolist() == [0, 0]
    assert weigh(only_first, "abc", score, "none", np.array([1.0, 3.0])).weights.tolist() == [0.25, 0.75]


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
