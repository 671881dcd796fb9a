"""Scores by hand: what comes out, what they say of it, and which settings they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import (
    AS_MANY_AS_POSSIBLE,
    AT_LEAST_HALF,
    MOST,
    OWA,
    Choquet,
    Linear,
    Power,
    Prioritized,
    PrioritizedAnd,
    PrioritizedMean,
    Product,
    QuantifierOWA,
    Score,
    Term,
    Terms,
    WeightedMean,
    explain_score,
)
from fedmerit.core.weights.topsis import Topsis
from fedmerit.errors import ConfigError

ROW = np.array([[0.5, 0.4, 0.2]])
TWO = np.array([[1.0, 1.0, 1.0], [0.5, 0.4, 0.2]])


@pytest.mark.parametrize(
    ("score", "value", "said"),
    [
        (Prioritized(), 0.74, "0.5000 + 0.5000 * 0.4000 + 0.5000 * 0.4000 * 0.2000 = 0.74"),
        (PrioritizedAnd(), 0.5, "least of 0.5000 ** 1.0000, 0.4000 ** 0.5000, 0.2000 ** 0.2000 = 0.5"),
        (
            PrioritizedMean(),
            0.74 / 1.7,
            "(0.5000 + 0.5000 * 0.4000 + 0.5000 * 0.4000 * 0.2000) / 1.7000 = 0.43529",
        ),
        (WeightedMean((0.5, 0.3, 0.2)), 0.41, "0.5000 * 0.5000 + 0.3000 * 0.4000 + 0.2000 * 0.2000 = 0.41"),
        (WeightedMean(), 1.1 / 3, "0.3333 * 0.5000 + 0.3333 * 0.4000 + 0.3333 * 0.2000 = 0.36667"),
        (Product(), 0.04, "0.5000 * 0.4000 * 0.2000 = 0.04"),
        (OWA((0.2, 0.3, 0.5)), 0.32, "0.2000 * 0.5000 + 0.3000 * 0.4000 + 0.5000 * 0.2000 = 0.32"),
        (QuantifierOWA(Power(2.0)), 2.7 / 9, "0.1111 * 0.5000 + 0.3333 * 0.4000 + 0.5556 * 0.2000 = 0.3"),
        (
            QuantifierOWA(Power(2.0), (3.0, 0.0, 1.0)),
            0.5 * 9 / 16 + 0.2 * 7 / 16,
            "0.5625 * 0.5000 + 0.0000 * 0.4000 + 0.4375 * 0.2000 = 0.36875",
        ),
        (
            Choquet(Capacity((0.0, 0.25, 0.25, 0.75, 0.25, 0.5, 0.5, 1.0))),
            0.2 + 0.2 * 0.75 + 0.1 * 0.25,
            "1.0000 * 0.2000 + 0.7500 * 0.2000 + 0.2500 * 0.1000 = 0.375",
        ),
    ],
    ids=lambda value: type(value).__name__ if callable(value) else "",
)
def test_a_score_and_what_it_says_of_itself(score: Score, value: float, said: str):
    assert score(ROW)[0] == pytest.approx(value)
    terms = explain_score(score, TWO, 1)
    assert terms is not None
    assert terms.joined == pytest.approx(value)
    assert terms.score == pytest.approx(value)
    assert str(terms) == said


def test_a_term_speaks_of_its_columns():
    def columns(score: Score, row: np.ndarray = ROW) -> list[tuple[int, ...]]:
        terms = explain_score(score, row, 0)
        assert terms is not None
        return [term.columns for term in terms.terms]

    assert columns(Prioritized()) == columns(PrioritizedAnd()) == [(0,), (0, 1), (0, 1, 2)]
    assert columns(Product()) == columns(WeightedMean()) == [(0,), (1,), (2,)]
    mixed = np.array([[0.4, 0.2, 0.5]])
    assert columns(OWA((0.2, 0.3, 0.5)), mixed) == columns(QuantifierOWA(MOST), mixed) == [(2,), (0,), (1,)]
    assert columns(Choquet(Capacity((0.0, 0.5, 0.5, 1.0))), np.array([[0.4, 0.2]])) == [(0, 1), (0,)]


def test_a_rank_takes_the_place_of_a_score():
    one = (Term((0,), "0.5000", 0.5),)
    assert str(Terms(one, "sum", score=0.5)) == "0.5"
    assert str(Terms(one, "sum", divisor=2.0, score=0.25)) == "(0.5000) / 2.0000 = 0.25"
    assert str(Terms(one, "sum", rank=(3.0, 4, "borda"), score=3.0)) == (
        "0.5000 = 0.5, rank 3 of 4 from below, which counts 3 (borda)"
    )


def test_a_score_of_ones_own_need_not_explain_itself():
    assert explain_score(lambda table: table[:, 0], ROW, 0) is None


@pytest.mark.parametrize(
    ("quantifier", "at"),
    [
        (MOST, [0.0, 0.0, 0.4, 1.0, 1.0]),
        (AT_LEAST_HALF, [0.0, 0.6, 1.0, 1.0, 1.0]),
        (AS_MANY_AS_POSSIBLE, [0.0, 0.0, 0.0, 0.6, 1.0]),
        (Linear(0.1, 0.3), [0.0, 1.0, 1.0, 1.0, 1.0]),
        (Power(2.0), [0.0, 0.09, 0.25, 0.64, 1.0]),
    ],
)
def test_words_as_numbers(quantifier: Callable[[np.ndarray], np.ndarray], at: list[float]):
    assert quantifier(np.array([0.0, 0.3, 0.5, 0.8, 1.0])) == pytest.approx(np.array(at))


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (float("nan"), 1.0), (0.5, 0.5 + 3e-6)])
@pytest.mark.parametrize("kind", [WeightedMean, OWA, Topsis])
def test_weights_sum_to_one_up_to_rounding(kind: type[WeightedMean], weights: tuple[float, ...]):
    with pytest.raises(ConfigError, match="sum to 1"):
        kind(weights)
    kind((0.3333333, 0.3333333, 0.3333333))


@pytest.mark.parametrize("importances", [(0.0, 0.0), (1.0, -0.1), (float("inf"), 1.0)])
def test_importances_are_not_all_zero(importances: tuple[float, ...]):
    with pytest.raises(ConfigError, match="not all 0"):
        QuantifierOWA(MOST, importances)
    QuantifierOWA(MOST, (0.0, 0.5))


@pytest.mark.parametrize(
    "score",
    [
        *(WeightedMean((0.5, 0.5)), OWA((1.0,)), QuantifierOWA(MOST, (1.0, 1.0)), Choquet(Capacity((0.0, 1.0)))),
        Topsis((0.5, 0.5)),
    ],
    ids=repr,
)
def test_a_score_fits_the_table(score: Score):
    with pytest.raises(ConfigError, match="criteria"):
        score(ROW)
