"""Step search: which step is taken, which clients judge, what that costs, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import ProbabilisticSoftmax, SoftmaxLearner, random_split, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import DS, Prioritized, Recipe, Run, StepSearch, Task, adaptive, federate
from fedmerit.core.search.evaluator import Mixtures
from fedmerit.core.search.search import Weighting
from fedmerit.core.types import Evaluation
from fedmerit.errors import ConfigError

SIZES = (9, 14, 30, 22, 18, 11)
OWN = Weighting(("DS", "LD"), Prioritized(), "max")


def task(learner: Any = None, validation: int = 8) -> Task:
    made = small_task(SIZES, (8,) * 6, learner or ProbabilisticSoftmax(lr=0.3, epochs=1))
    return replace(made, federation=replace(made.federation, validation=random_split((validation,) * 6, 3)))


def run(recipe: Recipe, rounds: int = 6, **settings: Any) -> Run:
    return federate(task(), recipe, rounds=rounds, fraction=0.5, seed=3, **settings)


@pytest.mark.parametrize(
    ("gains", "place"),
    [
        ([0.8, 1.0], 0),  # exactly the share that is accepted
        ([0.79, 1.0], 1),
        ([0.1, 0.9, 1.0], 1),
        ([0.2, 0.3, 0.3], 1),
        ([-0.3, -0.1, -0.2], 1),
        ([math.nan, 0.1], 1),
        ([math.nan, math.nan], 1),
        ([0.0, 0.0], 0),
        ([-0.1, 0.0], 1),
        ([-0.1, -0.2], 0),
    ],
)
def test_the_boldest_that_keeps_its_share_of_the_best_gain(gains: list[float], place: int):
    assert StepSearch().pick(gains) == place


def test_the_gain_is_the_median_over_clients_that_answered_both_times():
    sizes, right = np.array([10, 10, 80, 0]), np.zeros(4, np.int64)
    before = Evaluation(right, sizes, np.array([10.0, 10.0, 80.0, 0.0]))
    after = Evaluation(right, np.array([10, 10, 80, 5]), np.array([5.0, 7.0, 160.0, 1.0]))
    assert StepSearch().gain(before, after) == pytest.approx(0.3)


def test_where_no_loss_is_known_nobody_gains():
    sizes, right = np.array([4, 4]), np.array([1, 2])
    known, unknown = Evaluation(right, sizes, np.array([1.0, 1.0])), Evaluation(right, sizes)
    nobody = Evaluation(right, np.zeros(2, np.int64), np.zeros(2))
    for before, after in ((known, unknown), (unknown, known), (known, nobody)):
        assert math.isnan(StepSearch().gain(before, after))


@given(st.floats(-1e6, 1e6))
def test_one_judge_of_many_moves_a_median_by_no_more_than_a_vote(lie: float):
    sizes, right = np.full(5, 4), np.zeros(5, np.int64)
    before = Evaluation(right, sizes, np.full(5, 8.0))
    honest = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    losses = honest.copy()
    losses[2] = lie
    gains = [StepSearch().gain(before, Evaluation(right, sizes, one)) for one in (honest, losses)]
    assert abs(gains[0] - gains[1]) <= 1 / 4


def test_the_boldest_step_comes_first():
    visited = StepSearch().visit(OWN, StepSearch().weightings(OWN), np.random.default_rng(0))
    assert [weighting.label for weighting in visited[:3]] == [
        "DS > LD, lr 2, momentum 0.9",
        "DS > LD, lr 1, momentum 0.9",
        "DS > LD, lr 0.5, momentum 0.9",
    ]
    assert visited[-1].label == "DS > LD, lr 0.3, momentum 0.3"


def test_the_first_round_has_no_last_move_so_that_momenta_count_as_one():
    results = run(adaptive(DS), rounds=2).ledger
    first, second = results.candidates(1), results.candidates(2)
    assert [one.weighting for one in first] == [f"DS, lr {lr}, momentum 0.9" for lr in (2, 1, 0.5, 0.3)] + [
        "DS, lr 0.2, momentum 0.8"
    ]
    assert first[1].same == ("DS, lr 1, momentum 0.5", "DS, lr 1, momentum 0")
    assert len(second) == 8


def test_one_exchange_with_those_who_took_part_and_bytes_that_do_not_grow():
    """Three took part; the candidates and the model before go out as start, aggregate and last move."""
    rows = run(adaptive(DS), rounds=3).ledger.rounds()
    assert [(row["exchanges"], row["evaluations"], row["tests"]) for row in rows] == [
        (1, 6, 18),
        (1, 9, 27),
        (1, 9, 27),
    ]
    model = 12 * 4
    assert [row["bytes_down"] for row in rows] == [3 * model + 3 * 2 * model] + [3 * model + 3 * 3 * model] * 2


def test_mixtures_are_a_sequence_of_models():
    start, move = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    models = Mixtures(start, (move,), ((0.0,), (2.0,), (0.5,)))
    assert [model.tolist() for model in models[1:]] == [[2, 3, 4], [0.5, 1.5, 2.5]]
    assert models[0] is start
    assert (len(models), models.nbytes) == (3, 24)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: federate(task(SoftmaxLearner()), adaptive(DS)), "a learner that gives probabilities"),
        (lambda: federate(task(validation=0), adaptive(DS)), "task.validation = 0.1"),
    ],
)
def test_bad_settings_name_the_rule(make: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        make()
