"""What holds of the prioritized and the lexicographic operators [PMCFL, eq. 6] [Pereira]."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import DEGREE, rows, tables

from fedmerit import Prioritized, weigh
from fedmerit.core.weights.scores import Lexicographic

WIDTH = st.integers(1, 5)
ROUNDING = 1e-12


def increased(data: st.DataObject, row: np.ndarray) -> np.ndarray:
    """The row with one of its values raised."""
    place, to = data.draw(st.integers(0, len(row) - 1)), data.draw(DEGREE)
    higher = row.copy()
    higher[place] = max(to, row[place])
    return higher


def score(operator, row: np.ndarray) -> float:
    return float(operator(row[np.newaxis])[0])


@given(tables())
def test_recurrence_equals_the_sum_of_products(table):
    by_products = [sum(np.prod(row[: i + 1]) for i in range(len(row))) for row in table]
    assert Prioritized()(table) == pytest.approx(by_products, rel=1e-12)


@given(st.data(), tables(columns=2))
def test_a_zero_removes_every_later_term(data, table):
    place = data.draw(st.integers(0, table.shape[1] - 1))
    table[:, place] = 0
    shortened = Prioritized()(table[:, :place]) if place else np.zeros(len(table))
    assert Prioritized()(table) == pytest.approx(shortened, rel=1e-12)


@given(st.data(), WIDTH)
def test_a_better_value_never_lowers_the_score(data, m):
    row = data.draw(rows(m))
    assert score(Prioritized(), increased(data, row)) >= score(Prioritized(), row) - ROUNDING


FEW = st.sampled_from([0.0, 0.5, 1.0])
"""Few values, so that clients tie."""


@given(tables(FEW), st.randoms())
def test_scores_are_ranks_that_tied_clients_share(table, random):
    scores, ascending = Lexicographic()(table), sorted(map(tuple, table.tolist()))
    for row, score in zip(map(tuple, table.tolist()), scores, strict=True):
        assert score == np.mean([place for place, other in enumerate(ascending, start=1) if other == row])
    order = random.sample(range(len(table)), len(table))
    assert Lexicographic()(table[order]).tolist() == scores[order].tolist()


@given(tables(st.floats(0, 1e6)), st.sampled_from(["sum", "max", "minmax"]))
def test_a_better_first_criterion_never_weighs_less(raw, normalise):
    result = weigh(raw, [f"c{i}" for i in range(raw.shape[1])], Lexicographic(), normalise)
    by_first = np.argsort(raw[:, 0], kind="stable")
    firsts, weights = raw[by_first, 0], result.weights[by_first]
    assert ((np.diff(weights) >= 0) | (np.diff(firsts) == 0)).all()
    assert len(raw) > 1 or weights.tolist() == [1.0]
