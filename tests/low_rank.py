"""A module with adapters made by hand on a frozen base, constant buffers, and a task for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedmerit import Federation, Task, TorchLearner
from fedmerit.config.schema import TrainConfig

FEATURES, RANK, CLASSES, CLIENTS = 12, 2, 3, 4
VALUES = 2 * RANK * FEATURES
X = np.random.default_rng(3).normal(size=(80, FEATURES)).astype(np.float32)
Y = X[:, :CLASSES].argmax(axis=1).astype(np.int64)
TRAIN = TrainConfig(lr=0.3, epochs=2, batch=8)


class LowRank(nn.Module):
    """LoRA by hand: a frozen dense layer plus B A."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / 4)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T  # type: ignore[no-any-return]


class Scaled(nn.Module):
    """A constant buffer of each kind: persistent, not persistent, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((FEATURES,), 0.5))
        self.register_buffer("shift", torch.ones(FEATURES), persistent=False)
        self.register_buffer("mask", torch.tensor([True] * 10 + [False] * 2))

    def forward(self, x: Tensor) -> Any:
        return (x * self.scale + self.shift) * self.mask


def adapted() -> nn.Module:
    """48 values learn; 156 + 39 frozen parameters and three buffers stay. `build` does not seed its base."""
    head = nn.Linear(FEATURES, CLASSES).requires_grad_(False)
    return nn.Sequential(Scaled(), LowRank(nn.Linear(FEATURES, FEATURES)), nn.Tanh(), head)


def another_base() -> nn.Module:
    torch.manual_seed(5)
    return adapted()


def task(build: Callable[[], nn.Module] = adapted) -> Task:
    rows = np.split(np.arange(len(X)), CLIENTS)
    data = Federation.from_clients({f"site {place}": (X[own], Y[own]) for place, own in enumerate(rows)})
    return Task(data, TorchLearner(build, TRAIN))
