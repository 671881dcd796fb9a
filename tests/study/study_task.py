"""A task for studies, without torch: softmax regression on random rows; runs fail or take long on request."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from helpers import SoftmaxLearner, random_split

from fedmerit import Federation, Samples, TaskSpec
from fedmerit.config.schema import TaskConfig, TrainConfig

CLIENTS = 8
FAILS = {"momentum": 0.5}
"""[train] of a run that cannot start."""

SLOW = {"weight_decay": 0.02}
"""[train] of a run whose clients take so many seconds each."""


@dataclass(frozen=True)
class Small(SoftmaxLearner):
    fails: bool = False
    pause: float = 0.0

    def start(self, seed: int) -> np.ndarray:
        if self.fails:
            raise RuntimeError("no [disk] left")
        return super().start(seed)

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        time.sleep(self.pause)
        return super().train(model, samples, seed, epochs)


def load(config: TaskConfig, seed: int) -> Federation:
    """Random rows; each loading is noted in the file that `task.attribute` names, if it is a path."""
    if Path(config.attribute).is_absolute():
        with Path(config.attribute).open("a") as file:
            file.write(f"{seed}\n")
    sizes = np.random.default_rng(seed).integers(4, 40, CLIENTS).tolist()
    splits = [random_split(sizes, seed), random_split([9] * CLIENTS, 1000), random_split([5] * CLIENTS, seed + 2000)]
    names = tuple(f"<b>client {i}</b>" for i in range(CLIENTS))
    return Federation(names, splits[0], splits[1], classes=3, validation=splits[2])


def learner(model: str, train: TrainConfig) -> Small:
    return Small(lr=train.lr, epochs=train.epochs, fails=train.momentum > 0, pause=train.weight_decay)


SMALL = TaskSpec("small", "for tests", load, ("softmax",), learner=learner)
