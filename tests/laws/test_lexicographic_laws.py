"""What holds of the lexicographic score: first this, then that."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tables import tables

from fedmerit.core.weights.scores import Lexicographic
from fedmerit.core.weights.weigh import weigh

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
