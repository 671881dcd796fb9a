"""Clients on this machine: training, testing, failing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers import SoftmaxLearner, small_task

from fedmerit import Samples, Task, fedavg, federate
from fedmerit.core.types import Download
from fedmerit.fleet.local import LocalFleet


def downloads(task: Task, *clients: int) -> dict[int, Download]:
    return {client: Download(task.learner.start(0)) for client in clients}


def test_an_update_is_the_trained_model_minus_the_received_one():
    task = small_task()
    with LocalFleet(task) as fleet:
        replies = fleet.train(1, downloads(task, 2, 0), ("samples", "labels"), seed=5)
    assert replies.ids == (0, 2)
    start = task.learner.start(0)
    for place, client in enumerate(replies.ids):
        samples = task.federation.samples(client)
        expected = task.learner.train(start, samples, 0) - start
        one = np.eye(2)[place]
        np.testing.assert_allclose(replies.updates.combine(one), expected, rtol=1e-6)
        assert replies.facts[place] == {"samples": len(samples), "labels": len(np.unique(samples.y))}


def test_evaluation_equals_a_loop_over_clients():
    task = small_task(tests=(6, 1, 0, 700))
    models = [task.learner.start(seed) for seed in (0, 1)]
    with LocalFleet(task) as fleet:
        evaluations = fleet.evaluate(models)
    test = task.federation.test
    for model, evaluation in zip(models, evaluations, strict=True):
        by_hand = [
            int((task.learner.predict(model, test.x[test.rows(i)]) == test.y[test.rows(i)]).sum()) for i in range(4)
        ]
        assert evaluation.correct.tolist() == by_hand
        assert evaluation.sizes.tolist() == [6, 1, 0, 700]
        assert np.isnan(evaluation.local[2])
        assert evaluation.accuracy == pytest.approx(sum(by_hand) / 707)


@dataclass(frozen=True)
class Moody(SoftmaxLearner):
    """Fails for clients with fewer than 10 rows."""

    def train(self, model: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
        if len(samples) < 10:
            raise RuntimeError("too few rows for me")
        return super().train(model, samples, seed)


def test_a_client_whose_learner_raises_is_left_out_with_the_reason():
    run = federate(small_task(learner=Moody()), fedavg(), rounds=1, fraction=1.0)
    assert [earned.id for earned in run.explain(1)] == [1, 2]
    left_out = {event.client: event.text for event in run.events() if event.kind == "left-out"}
    assert left_out == dict.fromkeys((0, 3), "RuntimeError: too few rows for me")


@dataclass(frozen=True)
class Diverging(SoftmaxLearner):
    """Comes back with NaN from clients with more than 15 rows."""

    def train(self, model: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
        return np.full_like(model, np.nan) if len(samples) > 15 else super().train(model, samples, seed)


def test_a_client_that_diverges_is_left_out_and_the_model_stays_finite():
    run = federate(small_task(learner=Diverging()), fedavg(), rounds=2, fraction=1.0)
    assert np.isfinite(run.model).all()
    assert [(event.round, event.client) for event in run.events() if event.kind == "left-out"] == [(1, 2), (2, 2)]


def test_a_client_without_rows_is_left_out():
    run = federate(small_task(sizes=(5, 0, 20, 8)), fedavg(), rounds=1, fraction=1.0)
    assert [(event.client, event.text) for event in run.events() if event.kind == "left-out"] == [
        (1, "no training samples")
    ]


def test_training_seeds_belong_to_round_and_client():
    seen: list[int] = []

    @dataclass(frozen=True)
    class Noting(SoftmaxLearner):
        def train(self, model: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
            seen.append(seed)
            return super().train(model, samples, seed)

    task = small_task(learner=Noting())
    for wanted in ((0, 1, 2), (2,)):
        with LocalFleet(task) as fleet:
            fleet.train(1, downloads(task, *wanted), ("samples",), seed=5)
    with LocalFleet(task) as fleet:
        fleet.train(2, downloads(task, 2), ("samples",), seed=5)
        fleet.train(1, downloads(task, 2), ("samples",), seed=6)
    assert len(set(seen[:3])) == 3
    assert seen[3] in seen[:3]
    assert len(set(seen)) == 5
