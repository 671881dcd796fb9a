"""The bench's synthetic data as a task: `task.data = "ours.task:SYNTHETIC"`, with the folder in BENCH_DATA."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from fedmerit import Federation, Learner, Split
from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.learn.models import Build, dense, find_model, two_convolutions
from fedmerit.learn.sgd import TorchLearner
from fedmerit.tasks.registry import TaskSpec

DATA = "BENCH_DATA"
"""The environment variable that names the folder."""
MODELS: Mapping[str, Build] = {
    "mnist-cnn": find_model("mnist-cnn"),
    "femnist-cnn": partial(two_convolutions, channels=1, side=28, kernel=5, hidden=2048, outputs=62),
    "mnist-mlp": find_model("mnist-mlp"),
    "linear": partial(dense, 4, 2),
}


def split(folder: Path, offsets: str) -> Split:
    """Rows mapped from the files: the fleet copies them into shared memory itself."""
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    edges = np.load(folder / f"{offsets}.npy")
    return Split(x[: edges[-1]], y[: edges[-1]], edges)


def read(folder: Path) -> Federation:
    """Clients 0, 1, 2, ...; `test_offsets` says whose test rows are whose."""
    train, test = split(folder, "offsets"), split(folder, "test_offsets")
    names = tuple(map(str, range(len(train.offsets) - 1)))
    return Federation(names, train, test, classes=int(train.y[:1000].max()) + 1)


def load(config: TaskConfig, seed: int) -> Federation:
    """The rows in the folder of the environment."""
    return read(Path(os.environ[DATA]))


def learner(model: str, train: TrainConfig) -> Learner:
    """fedmerit's own learner for the model of that name."""
    return TorchLearner(MODELS[model], train)


SYNTHETIC = TaskSpec("synthetic", "the bench's random images", load, tuple(MODELS), learner=learner)
