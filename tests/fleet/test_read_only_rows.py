"""What learners may write to: rows are shared and stay as they are, the model is the learner's own copy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fleets import run_rounds
from helpers import SoftmaxLearner, small_task

from fedmerit import Samples, fedavg
from fedmerit.core.state import Record, State
from fedmerit.fleet.local import LocalFleet


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


@dataclass(frozen=True)
class Hanging(SoftmaxLearner):
    """Never comes to an end for one of the clients, which it knows by its rows."""

    rows: int = 20

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        if len(samples) == self.rows:
            time.sleep(600)
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


def test_a_client_that_never_ends_is_left_out_at_the_deadline():
    _, record = played(Hanging(), deadline=5.0)
    assert record.dropped == {2: "it did not finish within 5 s"}
    assert record.ids == (0, 1, 3)
