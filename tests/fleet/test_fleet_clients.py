"""Clients on this machine: training, testing, failing, and what learners may write to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fleets import run_rounds
from helpers import SoftmaxLearner, small_task

from fedmerit import Samples, Task, fedavg, federate
from fedmerit.core.state import Record, State
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
class Diverging(SoftmaxLearner):
    """Comes back with NaN from clients with more than 15 rows."""

    def train(self, model: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
        return np.full_like(model, np.nan) if len(samples) > 15 else super().train(model, samples, seed)


def test_a_client_that_diverges_is_left_out_and_the_model_stays_finite():
    run = federate(small_task(learner=Diverging()), fedavg(), rounds=2, fraction=1.0)
    assert np.isfinite(run.model).all()
    assert [(event.round, event.client) for event in run.events() if event.kind == "left-out"] == [(1, 2), (2, 2)]


class InPlace(SoftmaxLearner):
    """Trains the vector that it was given."""

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        model += super().train(model, samples, seed, epochs) - model
        return model


class Scaling(SoftmaxLearner):
    """Scales its rows where they lie."""

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        samples.x[:] *= 0.5
        return super().train(model, samples, seed, epochs)


def played(learner: Any, **settings: Any) -> tuple[State, Record]:
    with LocalFleet(small_task(learner=learner), **settings) as fleet:
        (state,), (record,) = run_rounds(fleet, fedavg(), 1, evaluate=True)
        return state, record


@pytest.mark.parametrize("workers", [1, 2])
def test_a_learner_that_trains_in_place_learns_as_any_other(workers: int):
    state, _ = played(InPlace(), workers=workers)
    other, _ = played(SoftmaxLearner())
    np.testing.assert_allclose(state.model, other.model, rtol=1e-5)
    assert not np.array_equal(state.model, SoftmaxLearner().start(1))


def test_a_learner_that_writes_to_its_rows_is_told():
    state, record = played(Scaling())
    assert set(record.dropped) == {0, 1, 2, 3}
    assert all("read-only" in reason for reason in record.dropped.values())
    assert (state.model == SoftmaxLearner().start(1)).all()
