"""Scores and ranks by hand and by law: what comes out, what they say of it, and which settings they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import Ranked, WeightedMean, fedval, weigh
from fedmerit.core.search.search import earn
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import (
    OWA,
    Choquet,
    Lexicographic,
    Prioritized,
    Product,
    Score,
    Term,
    Terms,
    explain_score,
)
from fedmerit.errors import ConfigError

ROW = np.array([[0.5, 0.4, 0.2]])
TWO = np.array([[1.0, 1.0, 1.0], [0.5, 0.4, 0.2]])


@pytest.mark.parametrize(
    ("score", "value", "said"),
    [
        (Prioritized(), 0.74, "0.5000 + 0.5000 * 0.4000 + 0.5000 * 0.4000 * 0.2000 = 0.74"),
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
    assert terms.joined == pytest.approx(value)
    assert terms.score == pytest.approx(value)
    assert str(terms) == said


def test_a_term_speaks_of_its_columns():
    def columns(score: Score, row: np.ndarray = ROW) -> list[tuple[int, ...]]:
        terms = explain_score(score, row, 0)
        return [term.columns for term in terms.terms]

    assert columns(Prioritized()) == [(0,), (0, 1), (0, 1, 2)]
    assert columns(Product()) == columns(WeightedMean()) == [(0,), (1,), (2,)]
    mixed = np.array([[0.4, 0.2, 0.5]])
    assert columns(OWA((0.2, 0.3, 0.5)), mixed) == [(2,), (0,), (1,)]
    assert columns(Choquet((0.5, 0.3, 0.2), ((0, 2, 0.1),))) == [(0,), (1,), (2,), (0, 2)]


def test_a_rank_takes_the_place_of_a_score():
    one = (Term((0,), "0.5000", 0.5),)
    assert str(Terms(one, "sum", score=0.5)) == "0.5"
    assert str(Terms(one, "sum", rank=(3.0, 4, "borda"), score=3.0)) == (
        "0.5000 = 0.5, rank 3 of 4 from below, which counts 3 (borda)"
    )


def test_a_score_of_ones_own_need_not_explain_itself():
    assert explain_score(lambda table: table[:, 0], ROW, 0) is None


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (float("nan"), 1.0), (0.5, 0.5 + 3e-6)])
@pytest.mark.parametrize("kind", [WeightedMean, OWA, Choquet])
def test_weights_sum_to_one_up_to_rounding(kind: type[WeightedMean], weights: tuple[float, ...]):
    with pytest.raises(ConfigError, match="sum to 1"):
        kind(weights)
    kind((0.3333333, 0.3333333, 0.3333333))


@pytest.mark.parametrize(
    "score",
    [
        *(WeightedMean((0.5, 0.5)), OWA((1.0,)), Choquet((0.5, 0.5))),
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


SCORES: list[Score] = [
    Prioritized(),
    Lexicographic(),
    WeightedMean(),
    WeightedMean((0.5, 0.2, 0.3)),
    Product(),
    OWA((0.2, 0.3, 0.5)),
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


SCORE = WeightedMean()
values = st.lists(st.integers(0, 20), min_size=1, max_size=12).map(lambda v: np.array(v, dtype=float) / 20)


def ranked(column: object, how: str = "borda", top: float = 0.5) -> list[float]:
    return Ranked(SCORE, how, top)(np.array(column, dtype=float)[:, np.newaxis]).tolist()  # type: ignore[arg-type]


def test_each_kind_by_hand():
    column = [0.2, 0.9, 0.5, 0.9]
    assert ranked(column) == [1, 3.5, 2, 3.5]
    assert ranked(column, "squared") == [1, 12.25, 4, 12.25]
    assert ranked(column, "exponential") == pytest.approx([2**-3, 2**-0.5, 2**-2, 2**-0.5])
    assert ranked(column, "top") == [0, 3.5, 0, 3.5]
    assert ranked([0.1, 0.2, 0.3], "top", 0.34) == [0, 2, 3]
    assert ranked([0.0, 0.0, 0.3]) == [0, 0, 3]


@settings(max_examples=100, deadline=None)
@given(column=values, how=st.sampled_from(["borda", "squared", "exponential", "top"]), power=st.floats(0.2, 4))
def test_monotone_changes_of_the_score_change_nothing(column: np.ndarray, how: str, power: float):
    assert ranked(column**power, how) == ranked(column, how)
    assert ranked(column / 2, how) == ranked(column, how)


@settings(max_examples=100, deadline=None)
@given(column=values, how=st.sampled_from(["borda", "squared", "exponential", "top"]))
def test_better_never_gets_less(column: np.ndarray, how: str):
    worth = np.array(ranked(column, how))
    order = np.argsort(column, kind="stable")
    assert (np.diff(worth[order]) >= 0).all()
    assert (worth[column == 0] == 0).all()
    for value in np.unique(column):
        assert len(set(worth[column == value])) == 1, "ties share"


def test_weights_by_hand():
    """rs / sum of rs [FedVal, eq. 2]; 3 clients, gamma 3 : 1."""
    table = np.array([[0.8, 0.4], [0.6, 0.9], [0.9, 0.9]])
    scores = 0.75 * table[:, 0] + 0.25 * table[:, 1]
    plain = weigh(table, ["a", "b"], WeightedMean((0.75, 0.25)), "none")
    assert plain.weights == pytest.approx(scores / scores.sum())
    assert plain.weights == pytest.approx([0.7 / 2.275, 0.675 / 2.275, 0.9 / 2.275])
    assert weigh(table, ["a", "b"], Ranked(WeightedMean((0.75, 0.25))), "none").weights == pytest.approx(
        [2 / 6, 1 / 6, 3 / 6]
    )


def test_both_readings_of_gamma_and_s():
    """gamma = (3, 1); p_k = sum_j gamma_j s_jk / total, or sum_j gamma_j / sum(gamma) * s_jk / sum_k s_jk."""
    scores = np.array([[0.9, 0.2], [0.6, 0.6]])
    facts = {"samples": np.ones(2), "validated:accuracy": scores[:, 0], "validated:f1": scores[:, 1]}
    cohort = Cohort(1, (0, 1), Updates(np.zeros((2, 1), np.float32)), facts)
    total = earn(fedval("accuracy", "f1", gamma=[3, 1]), cohort, History()).weights
    assert total == pytest.approx([2.9 / (2.9 + 2.4), 2.4 / (2.9 + 2.4)])
    each = earn(fedval("accuracy", "f1", gamma=[3, 1], normalise="sum"), cohort, History()).weights
    assert each == pytest.approx([0.75 * 0.6 + 0.25 * 0.25, 0.75 * 0.4 + 0.25 * 0.75])
