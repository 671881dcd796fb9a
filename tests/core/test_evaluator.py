"""Candidate evaluator: what goes out in which exchange, what it costs, and what is kept of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from fedmerit.core.criteria.table import DS
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Job
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.evaluator import ROWS_PER_PASS, CandidateEvaluator
from fedmerit.core.search.search import Candidate, Weighting
from fedmerit.core.seeds import Draws
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.server.server import Aggregate, Batch, Mean, Server
from fedmerit.core.stages.claims import Claims
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Evaluation, Model, one_group
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import Weights

SIZE = 3
START = np.full(SIZE, 10.0, np.float32)


@dataclass
class Asked:
    """Four clients that keep what they were asked about: a fifth of their rows right, and a loss of k on client k."""

    rows: Sequence[int] = (10, 10, 10, 10)
    models: list[list[list[float]]] = field(default_factory=list)
    clients: list[Sequence[int] | None] = field(default_factory=list)

    def judges(self) -> list[int]:
        return [0, 1, 2, 3]

    def evaluate(
        self, models: Sequence[Model], on: str, clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        self.models.append([model.tolist() for model in models])
        self.clients.append(clients)
        asked = np.isin(np.arange(4), self.judges() if clients is None else clients)
        sizes = np.where(asked, self.rows, 0)
        return [Evaluation(sizes // 5, sizes, np.arange(4.0) * asked if losses else None) for _ in models]


@dataclass(frozen=True)
class CountedMean(Mean):
    """The mean, which keeps how many weightings it was asked for at a time."""

    passes: list[int] = field(default_factory=list)

    def __call__(self, batch: Batch, weights: np.ndarray) -> np.ndarray:
        self.passes.append(len(weights))
        return batch.updates.combine(weights)


class Backwards:
    """A step that is not a sum of vectors, as far as the evaluator knows."""

    def __call__(self, model: Model, aggregate: Aggregate, own: Any, index: int) -> tuple[Model, Any]:
        return model - aggregate.update, {}


def evaluator(
    weights: np.ndarray, steps: Sequence[HeavyBall | None] = (), asked: Asked | None = None, **changes: Any
) -> tuple[CandidateEvaluator, Asked, list[int]]:
    """An evaluator whose aggregates are the weights themselves, its clients, and the sizes of the passes it made.

    changes     `optimizer`, `stages`, and `move`: the last move of the model
    """
    asked, mean = asked or Asked(), CountedMean()
    server = Server(mean, changes["optimizer"]) if "optimizer" in changes else Server(mean)
    recipe = Recipe((DS,), stages=changes.get("stages", ()), server=server)
    own = {"server": {"optimizer": {"move": changes["move"]}}} if "move" in changes else {}
    host = Host(asked, tuple("abcd"))  # type: ignore[arg-type]
    cohort = Cohort(2, (0, 1, 2), Updates(np.eye(SIZE, dtype=np.float32)), {})
    view = View(2, START, History(rounds=1), host, Draws(0, 2), own)
    candidates = [
        Candidate(Weighting(("DS",), Prioritized(), "sum", step), str(place), Weights(row, row, row, row))
        for place, (row, step) in enumerate(zip(weights, steps or [None] * len(weights), strict=True))
    ]
    job = Job(recipe, cohort, one_group(cohort), candidates, view)
    return CandidateEvaluator(Batch.of(cohort, candidates, view, {}), job, "test"), asked, mean.passes


def test_candidates_are_start_and_aggregate():
    made, asked, _ = evaluator(np.eye(SIZE))
    assert (made.exchanges, made.models_sent, made.tests, made.bytes_down, made.seconds) == (0, 0, 0, 0, 0)
    made.ask([2, 0], before=True)
    assert asked.models == [[[10, 10, 11], [11, 10, 10], [10, 10, 10]]]
    assert (made.exchanges, made.models_sent, made.tests) == (1, 3, 12)
    assert made.bytes_down == 4 * 3 * SIZE * 4  # to four clients: the model and two aggregates
    assert set(made.evaluations) == {0, 2}
    assert made.before is not None
    assert made.exchange_of == {2: 1, 0: 1}


def test_a_step_has_a_learning_rate_and_momentum():
    move = np.array([0, 0, 4], np.float32)
    made, asked, _ = evaluator(np.eye(SIZE)[:2], [HeavyBall(2.0, 0.0), HeavyBall(1.0, 0.5)], move=move)
    made.ask([0, 1])
    assert asked.models == [[[12, 10, 10], [10, 11, 12]]]
    assert made.bytes_down == 4 * 4 * SIZE * 4  # the move goes out as well


def test_a_step_of_another_kind_is_taken_by_the_server():
    made, asked, _ = evaluator(np.eye(SIZE)[:2], optimizer=Backwards())
    made.ask([0, 1], before=True)
    assert asked.models == [[[9, 10, 10], [10, 9, 10], [10, 10, 10]]]
    assert made.bytes_down == 4 * 3 * SIZE * 4  # three whole models


def test_candidates_that_share_their_weights_share_an_aggregate():
    same = np.array([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0]])
    made, asked, passes = evaluator(same, [HeavyBall(1.0, 0.0), HeavyBall(1.0, 0.0), HeavyBall(3.0, 0.0)])
    made.ask([0, 1, 2])
    assert asked.models == [[[11, 10, 10], [10, 11, 10], [13, 10, 10]]]
    assert (len(made), passes) == (3, [2])
    assert made.bytes_down == 4 * 3 * SIZE * 4


def test_more_weightings_than_go_at_once_take_another_exchange():
    weights = np.arange(3.0 * (ROWS_PER_PASS + 1)).reshape(-1, SIZE)
    made, asked, passes = evaluator(weights)
    made.ask(range(ROWS_PER_PASS + 1), before=True)
    assert [len(models) for models in asked.models] == [ROWS_PER_PASS + 1, 1]  # the model before goes out once
    assert passes == [ROWS_PER_PASS, 1]
    assert (made.exchange_of[ROWS_PER_PASS - 1], made.exchange_of[ROWS_PER_PASS], made.exchanges) == (1, 2, 2)
    assert made.aggregate(ROWS_PER_PASS).tolist() == weights[ROWS_PER_PASS].tolist()
    assert made.aggregate(1).tolist() == weights[1].tolist()
    made, asked, _ = evaluator(weights[:-1])
    made.ask(range(ROWS_PER_PASS))
    assert len(asked.models) == made.exchanges == 1


def test_some_clients_are_asked_and_a_candidate_keeps_its_first_exchange():
    made, asked, _ = evaluator(np.eye(SIZE))
    made.ask([1], [0, 2], before=True, losses=True)
    answers = made.evaluations[1]
    assert asked.clients == [[0, 2]]
    assert answers.sizes.tolist() == [10, 0, 10, 0]
    assert answers.losses is not None
    assert answers.losses.tolist() == [0, 0, 2, 0]
    assert made.before is not None
    assert made.before.sizes.tolist() == [10, 0, 10, 0]
    assert (made.tests, made.bytes_down) == (2 * 2, 2 * 2 * SIZE * 4)
    made.ask([1], [1])
    assert made.exchange_of == {1: 1}


def test_the_choice_has_what_was_learned_of_all():
    made, _, _ = evaluator(np.eye(SIZE))
    made.ask([2, 0], losses=True)
    choice = made.choice(2, quality=0.2)
    assert choice.aggregate.tolist() == [0, 0, 1]
    assert choice.evaluation is made.evaluations[2]
    assert [(one.quality, one.exchange, one.chosen) for one in choice.report.results] == [
        (6 / 40, 1, False), (None, None, False), (6 / 40, 1, True)]  # fmt: skip
    assert made.choice(2).evaluation is None, "without an exact quality the answers are not those of all"


def test_claims_bound_the_rows_of_a_judge():
    for stages, sizes in (((), [10, 10, 10, 1000]), ((Claims(k=2),), [10, 10, 10, 20])):
        made, _, _ = evaluator(np.eye(SIZE), asked=Asked((10, 10, 10, 1000)), stages=stages)
        made.ask([0], before=True)
        assert made.before is not None
        assert made.evaluations[0].sizes.tolist() == made.before.sizes.tolist() == sizes


def test_the_time_that_askings_took_is_added_up():
    made, _, _ = evaluator(np.eye(SIZE))
    begun = perf_counter()
    made.ask([0])
    first = made.seconds
    made.ask([1])
    assert 0 < first < made.seconds < perf_counter() - begun
