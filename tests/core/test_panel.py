"""A panel: what goes out in which exchange, what it costs, and how answers of several askings are added up."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import pytest

from fedmerit.core.objectives import Predictions
from fedmerit.core.search.evaluator import AT_ONCE, Panel
from fedmerit.core.types import Evaluation, Model

SIZE = 3
START = np.full(SIZE, 10.0, np.float32)


class Asked:
    """Four clients that keep what they were asked about: 2 of 10 rows right on client k, and a loss of k."""

    def __init__(self) -> None:
        self.models: list[list[list[float]]] = []
        self.clients: list[Sequence[int] | None] = []

    def judges(self) -> list[int]:
        return [0, 1, 2, 3]

    def evaluate(
        self, models: Sequence[Model], on: str, clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        self.models.append([model.tolist() for model in models])
        self.clients.append(clients)
        sizes = np.zeros(4, np.int64)
        sizes[list(self.judges() if clients is None else clients)] = 10
        return [Evaluation(sizes // 5, sizes, np.arange(4.0) * (sizes > 0) if losses else None) for _ in models]


def panel(weightings: np.ndarray, **options: object) -> tuple[Panel, Asked, list[int]]:
    """A panel whose aggregates are the weights themselves, its clients, and the sizes of the passes it made."""
    asked, passes = Asked(), []

    def combine(rows: np.ndarray) -> np.ndarray:
        passes.append(len(rows))
        return np.asarray(rows, np.float32)

    made = Panel(asked, "test", START, weightings, combine, np.random.default_rng(0), **options)  # type: ignore[arg-type]
    return made, asked, passes


def test_candidates_are_start_and_aggregate():
    made, asked, _ = panel(np.eye(SIZE))
    made.ask([2, 0], before=True)
    assert asked.models == [[[10, 10, 11], [11, 10, 10], [10, 10, 10]]]
    assert (made.exchanges, made.models_sent, made.tests) == (1, 3, 12)
    assert made.bytes_down == 4 * 3 * SIZE * 4  # to four clients: the model and two aggregates
    assert set(made.evaluations) == {0, 2}
    assert made.before is not None
    assert made.exchange_of == {2: 1, 0: 1}


def test_a_step_is_a_length_and_a_carry():
    move = np.array([0, 0, 4], np.float32)
    made, asked, _ = panel(np.eye(SIZE)[:2], coefficients=[(2.0, 0.0), (1.0, 0.5)], move=move)
    made.ask([0, 1])
    assert asked.models == [[[12, 10, 10], [10, 11, 12]]]
    assert made.bytes_down == 4 * 4 * SIZE * 4  # the move goes out as well


def test_a_step_of_another_kind_is_taken_by_the_server():
    made, asked, _ = panel(np.eye(SIZE)[:2], step=lambda place, update: START - (place + 1) * update)
    made.ask([0, 1], before=True)
    assert asked.models == [[[9, 10, 10], [10, 8, 10], [10, 10, 10]]]
    assert made.bytes_down == 4 * 3 * SIZE * 4  # three whole models


def test_candidates_that_share_their_weights_share_an_aggregate():
    same = np.array([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0]])
    made, asked, passes = panel(same, coefficients=[(1.0, 0.0), (1.0, 0.0), (3.0, 0.0)])
    made.ask([0, 1, 2])
    assert asked.models == [[[11, 10, 10], [10, 11, 10], [13, 10, 10]]]
    assert (len(made), passes) == (3, [2])
    assert made.bytes_down == 4 * 3 * SIZE * 4


def test_more_weightings_than_go_at_once_take_another_exchange():
    weights = np.arange(3.0 * (AT_ONCE + 1)).reshape(-1, SIZE)
    made, asked, passes = panel(weights)
    made.ask(range(AT_ONCE + 1), before=True)
    assert [len(models) for models in asked.models] == [AT_ONCE + 1, 1]  # the model before goes out once
    assert passes == [AT_ONCE, 1]
    assert (made.exchange_of[AT_ONCE - 1], made.exchange_of[AT_ONCE], made.exchanges) == (1, 2, 2)
    assert made.update(AT_ONCE).tolist() == weights[AT_ONCE].tolist()
    assert made.update(1).tolist() == weights[1].tolist()


def test_as_many_as_go_at_once_take_one():
    made, asked, _ = panel(np.arange(3.0 * AT_ONCE).reshape(-1, SIZE))
    made.ask(range(AT_ONCE))
    assert len(asked.models) == made.exchanges == 1


def test_answers_of_others_are_added():
    made, asked, _ = panel(np.eye(SIZE))
    made.ask([1], [0, 2], before=True, losses=True)
    made.ask([1], [3], before=True, losses=True)
    answers = made.evaluations[1]
    assert asked.clients == [[0, 2], [3]]
    assert answers.sizes.tolist() == [10, 0, 10, 10]
    assert answers.correct.tolist() == [2, 0, 2, 2]
    assert answers.losses is not None
    assert answers.losses.tolist() == [0, 0, 2, 3]
    assert made.before is not None
    assert made.before.sizes.tolist() == [10, 0, 10, 10]
    assert made.tests == 2 * 2 + 2 * 1
    assert made.exchange_of == {1: 1}


def test_losses_that_only_some_told_are_not_known():
    made, _, _ = panel(np.eye(SIZE))
    made.ask([1], [0], losses=True)
    made.ask([1], [3])
    assert made.evaluations[1].losses is None


def test_everybody_has_a_turn():
    made, _, _ = panel(np.eye(SIZE))
    assert sorted(made.turn) == [0, 1, 2, 3]
    assert (made.exchanges, made.models_sent, made.tests, made.bytes_down, made.seconds) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(("most", "sizes"), [(None, [10, 10, 10, 10]), (0.5, [5, 5, 5, 5])])
def test_a_judges_rows_count_as_some_medians_at_most(most: float | None, sizes: list[int]):
    made, _, _ = panel(np.eye(SIZE), most=most)
    made.ask([0])
    assert made.evaluations[0].sizes.tolist() == sizes


def test_the_time_that_askings_took_is_added_up():
    made, _, _ = panel(np.eye(SIZE))
    begun = perf_counter()
    made.ask([0])
    first = made.seconds
    made.ask([1])
    assert 0 < first < made.seconds < perf_counter() - begun


def test_the_server_is_asked_about_each_model_once_and_answers_are_put_beside_its_own():
    asked: list[list[float]] = []

    def predict(models: Sequence[Model]) -> Predictions:
        (model,) = models
        asked.append(model.tolist())
        return Predictions(np.array([0, 1]), 2, {}, np.array([[0, 1]]))

    made, _, _ = panel(np.eye(SIZE), predict=predict)
    made.ask([2], [0])
    made.ask([2, 0], [1], before=True)
    made.ask([1], before=True)
    assert asked == [[10, 10, 11], [11, 10, 10], [10, 10, 10], [10, 11, 10]]
    without, _, _ = panel(np.eye(SIZE))
    without.ask([0], before=True)
    assert without.reports is None
