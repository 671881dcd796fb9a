"""Scores by hand: what comes out, what they say of it, and which settings they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit.core.weights.scores import (
    OWA,
    Choquet,
    Prioritized,
    PrioritizedAnd,
    PrioritizedMean,
    Product,
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
        (
            Choquet((0.5, 0.3, 0.2), ((0, 1, 0.2), (0, 2, -0.1))),
            0.41 - 0.1 * 0.1 + 0.05 * 0.3,
            "0.5000 * 0.5000 + 0.3000 * 0.4000 + 0.2000 * 0.2000 + -0.1000 * 0.1000 + 0.0500 * 0.3000 = 0.415",
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
    assert columns(OWA((0.2, 0.3, 0.5)), mixed) == [(2,), (0,), (1,)]
    assert columns(Choquet((0.5, 0.3, 0.2), ((0, 2, 0.1),))) == [(0,), (1,), (2,), (0, 2)]


def test_a_rank_takes_the_place_of_a_score():
    one = (Term((0,), "0.5000", 0.5),)
    assert str(Terms(one, "sum", score=0.5)) == "0.5"
    assert str(Terms(one, "sum", divisor=2.0, score=0.25)) == "(0.5000) / 2.0000 = 0.25"
    assert str(Terms(one, "sum", rank=(3.0, 4, "borda"), score=3.0)) == (
        "0.5000 = 0.5, rank 3 of 4 from below, which counts 3 (borda)"
    )


def test_a_score_of_ones_own_need_not_explain_itself():
    assert explain_score(lambda table: table[:, 0], ROW, 0) is None


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (float("nan"), 1.0), (0.5, 0.5 + 3e-6)])
@pytest.mark.parametrize("kind", [WeightedMean, OWA, Topsis, Choquet])
def test_weights_sum_to_one_up_to_rounding(kind: type[WeightedMean], weights: tuple[float, ...]):
    with pytest.raises(ConfigError, match="sum to 1"):
        kind(weights)
    kind((0.3333333, 0.3333333, 0.3333333))


@pytest.mark.parametrize(
    "score",
    [
        *(WeightedMean((0.5, 0.5)), OWA((1.0,)), Choquet((0.5, 0.5)), Topsis((0.5, 0.5))),
    ],
    ids=repr,
)
def test_a_score_fits_the_table(score: Score):
    with pytest.raises(ConfigError, match="criteria"):
        score(ROW)


@pytest.mark.parametrize(
    ("shapley", "interaction", "message"),
    [
        ((0.5, 0.5), ((0, 0, 0.1),), r"as \[i, j, value\] with i < j < 2 \(got"),
        ((0.5, 0.5), ((1, 0, 0.1),), "with i < j < 2"),
        ((0.5, 0.5), ((0, 2, 0.1),), "with i < j < 2"),
        ((0.5, 0.5), ((-1, 1, 0.1),), "with i < j < 2"),
        ((0.5, 0.5), ((0, 1, 0.1), (0, 1, 0.2)), "each pair once"),
        ((0.1, 0.9), ((0, 1, 0.3),), r"value 0.1 of criterion 0 is below half of its interactions \(0.15\)"),
        ((0.4, 0.5, 0.1), ((0, 2, 0.1), (1, 2, -0.2)), "of criterion 2 is below half"),
        ((0.5, 0.5), ((0, 1, float("nan")),), "below half"),
        ((0.0, 1.0), ((0, 1, 4e-6),), "below half"),
    ],
)
def test_choquet_refuses_what_is_not_a_monotone_measure(
    shapley: tuple[float, ...], interaction: tuple[tuple[int, int, float], ...], message: str
):
    with pytest.raises(ConfigError, match=message):
        Choquet(shapley, interaction)
    Choquet((0.0, 1.0), ((0, 1, 1e-6),))  # rounding


@pytest.mark.parametrize("kind", [OWA, Choquet])
def test_weights_that_have_no_default_are_not_empty(kind: type[OWA]):
    with pytest.raises(ConfigError, match="sum to 1"):
        kind(())
