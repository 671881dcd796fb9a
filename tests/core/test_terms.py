"""Every score explains itself: its terms, joined, are its number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.core.weights.scores import (
    OWA,
    Choquet,
    Lexicographic,
    Prioritized,
    PrioritizedAnd,
    PrioritizedMean,
    Product,
    Ranked,
    Score,
    Terms,
    WeightedMean,
    explain_score,
)
from fedmerit.core.weights.topsis import Topsis

SCORES: list[Score] = [
    Prioritized(),
    PrioritizedAnd(),
    PrioritizedMean(),
    Lexicographic(),
    WeightedMean(),
    WeightedMean((0.5, 0.2, 0.3)),
    Product(),
    OWA((0.2, 0.3, 0.5)),
    Topsis((0.5, 0.2, 0.3)),
    Choquet((0.5, 0.3, 0.2), ((0, 1, 0.1), (1, 2, -0.1))),
]
RANKED = [Ranked(score, how) for score in SCORES for how in ("borda", "squared", "exponential", "top")]
tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.just(3)),
    elements=st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1)),
)


@pytest.mark.parametrize("score", [*SCORES, *RANKED], ids=repr)
@given(table=tables)
def test_terms_come_to_the_score(score: Score, table: np.ndarray):
    scores = score(table)
    for place in range(len(table)):
        terms = explain_score(score, table, place)
        assert isinstance(terms, Terms)
        assert terms.score == pytest.approx(scores[place], abs=1e-9)
        inner = score.score if isinstance(score, Ranked) else score
        assert terms.joined == pytest.approx(inner(table)[place], abs=1e-9)
        assert (terms.rank is not None) == isinstance(score, Ranked)
        assert all(0 <= column < 3 for term in terms.terms for column in term.columns)


def test_a_rank_shows_the_arithmetic_of_its_score():
    ranked = str(Ranked(Product()).terms(np.array([[0.5, 0.4], [1.0, 0.2]]), 1))
    assert ranked == "1.0000 * 0.2000 = 0.2, rank 1.5 of 2 from below, which counts 1.5 (borda)"
