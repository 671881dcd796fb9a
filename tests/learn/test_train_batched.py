"""Several clients at once: the same models as one by one, and one bad client does not spoil its group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedmerit import Federation, Samples, Split, Task, TorchLearner, fedavg, federate
from fedmerit.config.schema import TrainConfig
from fedmerit.learn.models import find_model


def samples(size: int, seed: int) -> Samples:
    random = np.random.default_rng(seed)
    return Samples(random.integers(0, 256, (size, 8, 8, 1), dtype=np.uint8), random.integers(0, 10, size), 10)


def with_dropout() -> nn.Module:
    hidden = (nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 10))
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), *hidden)


@pytest.mark.parametrize("build", [find_model("digits-mlp"), find_model("digits-linear"), with_dropout])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("batch", ["full", 1, 7])
def test_batched_is_one_by_one(build: Any, momentum: float, batch: Any) -> None:
    learner = TorchLearner(build, TrainConfig(lr=0.05, momentum=momentum, epochs=3, batch=batch))
    assert learner.clients_at_once > 1
    start = learner.start(1)
    starts = [start, start * 2, start, -start]
    clients = [samples(size, seed) for seed, size in enumerate([20, 1, 33, 7])]
    seeds = [5, 6, 7, 8]
    alone = [learner.train(*one) for one in zip(starts, clients, seeds, strict=True)]
    batched = learner.train_batched(starts, clients, seeds, [None] * len(seeds))
    for one, other in zip(alone, batched, strict=True):
        assert np.allclose(one, other, atol=2e-5)
        assert not np.array_equal(one, start)


def one_output() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


@pytest.mark.parametrize("build", [find_model("mnist-cnn"), one_output])
def test_other_models_train_one_by_one(build: Any) -> None:
    assert TorchLearner(build, TrainConfig()).clients_at_once == 1


@dataclass(frozen=True)
class Grouped:
    """Counts on groups of three; client 4 spoils every group it is in."""

    clients_at_once: int = 3

    def start(self, seed: int) -> np.ndarray:
        return np.zeros(2, dtype=np.float32)

    def train(self, model: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
        if samples.y[0] == 4:
            raise ValueError("bad rows")
        return model + np.float32(1)

    def train_batched(
        self, models: Sequence[Any], samples: Sequence[Samples], seeds: Sequence[int], epochs: Sequence[Any]
    ) -> list[Any]:
        return [self.train(*one) for one in zip(models, samples, seeds, strict=True)]

    def predict(self, model: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x), dtype=np.int64)


def test_one_bad_client_does_not_spoil_its_group() -> None:
    split = Split(np.zeros((8, 2), dtype=np.float32), np.arange(8), np.arange(9))
    task = Task(Federation(tuple("abcdefgh"), split, split, classes=8), Grouped())
    run = federate(task, fedavg(), rounds=1, fraction=1.0)
    assert [row.id for row in run.explain(1)] == [0, 1, 2, 3, 5, 6, 7]
    assert [(event.client, event.text) for event in run.events() if event.kind == "left-out"] == [
        (4, "ValueError: bad rows")
    ]
    assert np.allclose(run.model, 1)
