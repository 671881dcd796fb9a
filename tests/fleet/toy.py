"""A toy task without torch: quick to start, exact to compare, and able to misbehave on request."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit import Federation, Samples, Split, Task, TaskSpec
from fedmerit.config.schema import TaskConfig, TrainConfig

CLIENTS, ROWS, FEATURES = 12, 5, 300


@dataclass(frozen=True)
class Toy:
    """Moves the model towards the client's mean row, with noise from the seed."""

    pause: float = 0.0
    raise_on: int | None = None
    die_on: int | None = None
    die_once: Path | None = None

    def start(self, seed: int) -> NDArray[np.float32]:
        return np.random.default_rng(seed).normal(size=FEATURES).astype(np.float32)

    def train(
        self, model: NDArray[np.float32], samples: Samples, seed: int, epochs: int | None = None
    ) -> NDArray[np.float32]:
        client = int(samples.y[0])
        if started := os.environ.get("TOY_STARTED"):
            Path(started).touch()
        random = np.random.default_rng(seed)
        if self.pause:
            time.sleep(self.pause * float(np.random.default_rng().random()))  # another order of arrival every time
        if client == self.raise_on:
            raise ValueError("this client cannot train")
        if client == self.die_on:
            os._exit(7)
        if self.die_once is not None and not self.die_once.exists():
            self.die_once.touch()
            os._exit(7)
        pull = samples.x.mean(axis=0) - model
        return (model + 0.1 * pull + random.normal(scale=0.01, size=FEATURES)).astype(np.float32)

    def predict(self, model: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.int64]:
        return (x @ model > 0).astype(np.int64) * (x[:, 0] > 0).astype(np.int64)


def federation() -> Federation:
    random = np.random.default_rng(5)
    x = random.normal(size=(CLIENTS * ROWS, FEATURES)).astype(np.float32)
    offsets = np.arange(CLIENTS + 1) * ROWS
    train = Split(x, np.repeat(np.arange(CLIENTS), ROWS), offsets)
    test = Split(x, random.integers(0, 2, CLIENTS * ROWS), offsets)
    return Federation(tuple(f"client {i}" for i in range(CLIENTS)), train, test, classes=CLIENTS)


def task(**behaviour: Any) -> Task:
    return Task(federation(), Toy(**behaviour))


def load(config: TaskConfig, seed: int) -> Federation:
    return federation()


def slow_learner(model: str, train: TrainConfig) -> Toy:
    return Toy(pause=0.02)


TOY = TaskSpec("toy", "for tests", load, ("toy",), learner=slow_learner)


def sleepy_learner(model: str, train: TrainConfig) -> Toy:
    return Toy(pause=60.0)


SLEEPY = TaskSpec("sleepy", "for tests of impatience", load, ("toy",), learner=sleepy_learner)
