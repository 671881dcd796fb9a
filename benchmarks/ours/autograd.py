"""W7: modules that go through autograd, our training against the best bare loop, interleaved.

    cd benchmarks && python -m ours.autograd [job.json]

The bare loop takes as many steps on the same rows, with `torch.autograd.grad` and `torch._foreach_add_`. All of it runs
with one thread, in one process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ours.timed import Timed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmerit.config.schema import TrainConfig
from fedmerit.core.types import Samples
from fedmerit.fleet.pool import keep_memory
from fedmerit.learn.sgd import TorchLearner

BARE = "bare loop"


class ClassCnn(nn.Module):
    """mnist-cnn's layers in a class with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.hidden, self.out = nn.Linear(3136, 512), nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.max_pool2d(self.one(x).relu(), 2)
        x = torch.max_pool2d(self.two(x).relu(), 2)
        return self.out(self.hidden(x.flatten(1)).relu())


class Block(nn.Module):
    """Two convolutions with batch-norm, and the way around them."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.around = nn.Conv2d(into, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.two(self.norm1(self.one(x)).relu()))
        return (y + self.around(x)).relu()


class ResNet8(nn.Module):
    """Three blocks of 16, 32 and 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.first(x).relu()).mean((2, 3)))


class Lstm(nn.Module):
    """The next of 80 characters after 80 of them, as in LEAF's Shakespeare."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(80, 8), nn.LSTM(8, 256, 2, batch_first=True)
        self.out = nn.Linear(256, 80)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(self.embed(x))[0][:, -1])


class Transformer(nn.Module):
    """Two layers over 80 characters."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.embed, self.layers = nn.Embedding(80, 64), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(64, 80)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(self.embed(x)).mean(1))


WORKS: dict[str, tuple[type[nn.Module], tuple[int, ...], int, int]] = {
    "CNN as a class": (ClassCnn, (28, 28, 1), 10, 300),
    "ResNet-8 with batch-norm": (ResNet8, (32, 32, 3), 10, 200),
    "LSTM, Shakespeare's shape": (Lstm, (80,), 80, 40),
    "transformer of 2 layers": (Transformer, (80,), 80, 100),
}
"""Module, shape of a row, classes, rows; batch 10, one epoch."""


def rows_of(shape: tuple[int, ...], classes: int, number: int) -> Samples:
    random = np.random.default_rng(0)
    characters = len(shape) == 1
    x = random.integers(0, 80, (number, *shape)) if characters else random.random((number, *shape)).astype(np.float32)
    return Samples(x, random.integers(0, classes, number), classes=classes)


def bare(module: nn.Module, samples: Samples, lr: float) -> Callable[[], None]:
    x, y = torch.from_numpy(samples.x), torch.from_numpy(samples.y)
    x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    parameters = list(module.parameters())

    def train() -> None:
        order = torch.randperm(len(y))
        for rows in order.split(10):
            gradients = torch.autograd.grad(cross_entropy(module(x[rows]), y[rows]), parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-lr)

    return train


def ways(name: str, share: int) -> dict[str, Callable[[], object]]:
    """Both ways to train the module of a work, on a part of its rows."""
    build, shape, classes, number = WORKS[name]
    samples, config = rows_of(shape, classes, number // share), TrainConfig(lr=0.01, epochs=1, batch=10)
    learner = TorchLearner(build, config)
    start = learner.start(0)
    return {
        f"{name}, fedmerit": lambda: learner.train(start, samples, 0),
        f"{name}, {BARE}": bare(build(), samples, config.lr),
    }


def main() -> None:
    """Time every work both ways, in turn."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")) if len(sys.argv) > 1 else {"times": 5}
    torch.set_num_threads(1)
    keep_memory()  # as our workers do, and whoever writes the best loop: page faults would be a tenth of both
    timed = Timed(job["times"])
    for name in WORKS:
        timed.interleaved(ways(name, 10 if job.get("quick") else 1))
    timed.answer()


if __name__ == "__main__":
    main()
