"""TOPSIS: distances to the best and the worst value of every criterion."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.weights.topsis import Topsis

TWENTIETHS = st.integers(0, 20).map(lambda k: k / 20)
TABLES = arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=TWENTIETHS)


def test_a_table_by_hand():
    """Both columns have norm 5: (0.6, 0), (0.8, 1) and (0, 0). The first is 0.6 from the worst and sqrt(1.04) away."""
    table = np.array([[3.0, 0.0], [4.0, 5.0], [0.0, 0.0]])
    np.testing.assert_allclose(Topsis()(table), [0.6 / (0.6 + np.sqrt(1.04)), 1, 0])


def test_weights_decide():
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert Topsis((0.75, 0.25))(table).round(9).tolist() == [0.75, 0.25]


@given(TABLES)
def test_scores_lie_between_the_worst_and_the_best(table: np.ndarray):
    scores = Topsis()(table)
    assert ((scores >= 0) & (scores <= 1)).all()
    best, worst = table.max(axis=0), table.min(axis=0)
    with_both = Topsis()(np.vstack([table, best, worst]))
    assert with_both[-2] == 1
    assert with_both[-1] == (0 if (best > worst).any() else 1)
