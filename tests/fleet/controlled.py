"""A learner of squares, exact to work out by hand, that takes SCAFFOLD's and FedDyn's vectors and a learning rate.

Client k has the mean row a_k and the loss |w - a_k|^2 / 2, so that its gradient at w is w - a_k.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit import Federation, Samples, Split, Task, TaskSpec
from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.core.lr_schedules import cosine_factor
from fedmerit.core.server.controls import CORRECTION, SLOPE, Control, FedDyn, Scaffold

Model = NDArray[np.float32]


@dataclass(frozen=True)
class Squares:
    """Gradient steps of length `lr`; the model is as long as a row."""

    control: Control | None = None
    lr: float = 0.5
    steps: int = 2
    begin: float = 2.0
    features: int = 1
    schedule: Any = None
    die_once: Path | None = None

    def start(self, seed: int) -> Model:
        return np.full(self.features, self.begin, np.float32)

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        return self.train_with(model, {}, samples, seed, epochs)[0]

    @property
    def extras(self) -> tuple[str, ...]:
        return (SLOPE,) if isinstance(self.control, Scaffold) else ()

    def train_with(
        self, model: Model, extras: Mapping[str, Model], samples: Samples, seed: int, epochs: int | None
    ) -> tuple[Model, Mapping[str, Model]]:
        if self.die_once is not None and extras and not self.die_once.exists():
            self.die_once.touch()
            os._exit(7)
        goal, correction = samples.x.mean(axis=0), extras.get(CORRECTION, np.zeros_like(model))
        pull = self.control.alpha if isinstance(self.control, FedDyn) else 0.0
        y = model
        for _ in range(epochs or self.steps):
            y = (y - self.lr * (y - goal + correction + pull * (y - model))).astype(np.float32)
        slope = (model - y) / np.float32(self.lr * (epochs or self.steps))
        return y, {SLOPE: slope} if self.extras else {}

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[np.int64]:
        return (x.mean(axis=1) > model.mean()).astype(np.int64)

    def rate(self, index: int, rounds: int | None) -> float | None:
        return None if self.schedule is None else self.lr * self.schedule(index, rounds)

    def at_rate(self, lr: float) -> Squares:
        return replace(self, lr=lr)


def federation(goals: NDArray[np.float32]) -> Federation:
    """A row and a test row for each client."""
    rows = Split(goals, (np.arange(len(goals)) % 2).astype(np.int64), np.arange(len(goals) + 1))
    return Federation(tuple(f"client {i}" for i in range(len(goals))), rows, rows, classes=2)


def many_goals() -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(8, 40)).astype(np.float32)


def task(goals: NDArray[np.float32], **settings: Any) -> Task:
    return Task(federation(goals), Squares(features=goals.shape[1], **settings))


def make_learner(model: str, train: TrainConfig) -> Squares:
    """As [train] says."""
    controls: dict[str, Control | None] = {"sgd": None, "scaffold": Scaffold(), "feddyn": FedDyn(train.prox)}
    schedule = cosine_factor if train.schedule == "cosine" else None
    return Squares(controls[train.algorithm], train.lr, train.epochs, 0.0, 40, schedule)


def load(config: TaskConfig, seed: int) -> Federation:
    return federation(many_goals())


SPEC = TaskSpec("squares", "for tests", load, ("squares",), learner=make_learner)


@dataclass(frozen=True)
class Bare:
    """A learner that knows neither schedules nor controls."""

    def start(self, seed: int) -> Model:
        return np.zeros(40, np.float32)

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        return model

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[np.int64]:
        return np.zeros(len(x), np.int64)


BARE = TaskSpec("bare", "for tests", load, ("bare",), learner=lambda model, train: Bare())
