"""Named vectors in addition to models and updates: the same on one worker, on two, and over Flower's messages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from fleets import on_flower
from helpers import SoftmaxLearner, small_task

from fedmerit import Samples, Task
from fedmerit.core.check import check
from fedmerit.core.host import Host
from fedmerit.core.state import History, State, View
from fedmerit.core.types import Download, Replies
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.model_files import read_checkpoint, write_checkpoint


@dataclass(frozen=True)
class Correcting(SoftmaxLearner):
    """Subtracts a correction that the server sent, and sends back what it subtracted, and a count."""

    extras: tuple[str, ...] = ("count", "taken")

    def train_with(
        self, model: np.ndarray, extras: Mapping[str, np.ndarray], samples: Samples, seed: int, epochs: int | None
    ) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        trained = self.train(model, samples, seed, epochs) - extras["correction"]
        return trained, {"taken": extras["correction"], "count": np.full_like(model, len(samples))}


TASK = small_task(sizes=(5, 0, 20, 8), learner=Correcting())


def downloads(task: Task) -> dict[int, Download]:
    """Two clients share a correction, the third has its own."""
    model = task.learner.start(0)
    shared, own = np.full_like(model, 0.25), np.full_like(model, -1.0)
    return {client: Download(model, vectors={"correction": own if client == 3 else shared}) for client in (0, 1, 2, 3)}


def over_messages(task: Task) -> Replies:
    return on_flower(task).train(1, downloads(task), ("samples",), 3)


def locally(task: Task, workers: int) -> Replies:
    with LocalFleet(task, workers) as fleet:
        replies = fleet.train(1, downloads(task), ("samples",), 3)
        return replace(replies, updates=replies.updates.keep(np.arange(4)))


@pytest.mark.parametrize("where", ["one worker", "two workers", "flower"])
def test_vectors_go_out_and_come_back(where: str):
    replies = over_messages(TASK) if where == "flower" else locally(TASK, 1 if where == "one worker" else 2)
    with LocalFleet(TASK) as fleet:
        view = View.of(State(TASK.learner.start(0)), Host.of(fleet), 3)
    cohort, left_out = check(replies, ("samples",), view)
    assert left_out == {1: "no training samples"}
    assert cohort.ids == (0, 2, 3)
    assert set(cohort.vectors) == {"count", "taken"}
    taken = cohort.vectors["taken"].combine(np.eye(3))
    assert taken[:, 0].tolist() == [0.25, 0.25, -1.0]
    assert cohort.vectors["count"].combine(np.eye(3))[:, 0].tolist() == [5, 20, 8]
    plain = small_task(sizes=(5, 0, 20, 8))
    for place, client in enumerate(cohort.ids):
        model = plain.learner.start(0)
        trained = plain.learner.train(model, plain.federation.samples(client), 0)
        np.testing.assert_allclose(cohort.updates.row(place), trained - taken[place] - model, atol=1e-6)
    length = TASK.learner.start(0).nbytes
    assert (replies.bytes_down, replies.bytes_up) == (8 * length, 12 * length)


def test_a_learner_that_takes_none_says_so():
    with LocalFleet(small_task()) as fleet:
        replies = fleet.train(1, downloads(small_task()), ("samples",), 3)
    assert all("train_with" in reason for reason in replies.failed.values())
    assert len(replies.failed) == 4


def test_checkpoints_keep_every_leaf_of_a_state_to_the_bit(tmp_path: Path):
    random = np.random.default_rng(0)
    model, momentum = random.normal(size=(2, 50)).astype(np.float32)
    wide = random.normal(size=(3, 4))
    own = {
        "server": {"optimizer": {"momentum": momentum}, "control": {"clients": {"7": wide}}},
        "search": {"step": 3, "quality": 0.1 + 0.2, "label": "DS > LD", "unknown": float("inf")},
    }
    write_checkpoint(tmp_path, State(model, History(7), own))
    found = read_checkpoint(tmp_path, 7)
    assert (found[0].tobytes(), found[2]) == (model.tobytes(), 7)
    assert found[1]["search"] == own["search"]
    assert found[1]["server"]["optimizer"]["momentum"].tobytes() == momentum.tobytes()
    kept = found[1]["server"]["control"]["clients"]["7"]
    assert (kept.dtype, kept.shape, kept.tobytes()) == (wide.dtype, wide.shape, wide.tobytes())
