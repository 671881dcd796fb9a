"""Local SGD on a flat vector: the learner for PyTorch models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fedmerit.config import TrainConfig
from fedmerit.learn.flat import FlatModule
from fedmerit.types import Model, Samples

PREDICT_ROWS = 1000  # rows per forward pass when predicting: large enough to be fast, small enough for the cache


@dataclass(frozen=True)
class TorchLearner:
    """SGD with optional momentum, weight decay and FedProx term, in one thread so that bits do not depend on cores.

    `build` makes the module; with one output the loss is binary cross-entropy on its logit, else cross-entropy.
    """

    build: Callable[[], nn.Module]
    config: TrainConfig = field(default_factory=TrainConfig)

    def start(self, seed: int) -> Model:
        """The module as `build` initialises it under this seed."""
        with _quiet_torch(seed):
            return FlatModule(self.build()).values.numpy().copy()

    def train(self, model: Model, samples: Samples, seed: int) -> Model:
        """Epochs of SGD from `model`; batches are drawn anew in each epoch."""
        with _quiet_torch(seed):
            flat = _flat(self.build)
            flat.values.copy_(torch.from_numpy(model))
            flat.module.train()
            x, y = as_input(samples.x), torch.from_numpy(samples.y)
            step = _Step(flat, self.config)
            for rows in _batches(len(samples), self.config.epochs, self.config.batch, seed):
                step(x[rows], y[rows])
            return flat.values.numpy().copy()

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[np.int64]:
        """argmax of the outputs; for a single output, whether its logit is positive."""
        with _quiet_torch(0), torch.inference_mode():
            flat = _flat(self.build)
            flat.values.copy_(torch.from_numpy(model))
            flat.module.eval()
            parts = [_decide(flat.module(as_input(x[i : i + PREDICT_ROWS]))) for i in range(0, len(x), PREDICT_ROWS)]
            return torch.cat(parts).numpy() if parts else np.empty(0, dtype=np.int64)


class _Step:
    """One SGD step as a few operations on whole vectors."""

    def __init__(self, flat: FlatModule, config: TrainConfig) -> None:
        self.flat, self.config = flat, config
        self.anchor = flat.trained.clone() if config.prox else None
        self.velocity = torch.zeros_like(flat.gradient) if config.momentum else None

    def __call__(self, x: Tensor, y: Tensor) -> None:
        flat, config, gradient = self.flat, self.config, self.flat.gradient
        gradient.zero_()
        _loss(flat.module(x), y).backward()  # type: ignore[no-untyped-call]
        if config.weight_decay:
            gradient.add_(flat.trained, alpha=config.weight_decay)
        if self.anchor is not None:
            gradient.add_(flat.trained - self.anchor, alpha=config.prox)
        if self.velocity is not None:
            gradient = self.velocity.mul_(config.momentum).add_(gradient)
        flat.trained.add_(gradient, alpha=-config.lr)


@lru_cache(maxsize=4)
def _flat(build: Callable[[], nn.Module]) -> FlatModule:
    """One module per process and kind, reused by every client: its values are overwritten each time."""
    return FlatModule(build())


def as_input(x: NDArray[Any]) -> Tensor:
    """uint8 images to floats in 0..1, channels first as torch wants them and channels last in memory."""
    tensor = torch.from_numpy(x)
    if tensor.dtype == torch.uint8:
        tensor = tensor.float().div_(255)
    return tensor.permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor


def _batches(rows: int, epochs: int, batch: int | Literal["full"], seed: int) -> Iterator[slice | Tensor]:
    if batch == "full" or batch >= rows:
        yield from (slice(None) for _ in range(epochs))
        return
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = torch.from_numpy(random.permutation(rows))
        yield from (order[start : start + batch] for start in range(0, rows, batch))


def _loss(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs.dtype))
    return cross_entropy(outputs, y)


def _decide(outputs: Tensor) -> Tensor:
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)


@contextmanager
def _quiet_torch(seed: int) -> Iterator[None]:
    """One thread and a seed of our own, with the caller's settings back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
