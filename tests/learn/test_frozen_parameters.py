"""Frozen parameters and constant buffers stay where they are; buffers that training may change are sent."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from low_rank import CLASSES, FEATURES, TRAIN, Scaled, X, Y, adapted, another_base
from torch import Tensor, nn

from fedmerit import Samples, TorchLearner
from fedmerit.core.learner import base_hash
from fedmerit.errors import ConfigError
from fedmerit.learn.flat import FlatModule


def test_the_frozen_part_is_the_same_everywhere_and_only_adapters_depend_on_the_seed() -> None:
    learner = TorchLearner(adapted, TRAIN)
    again = TorchLearner(partial(adapted), TRAIN)  # another build: nothing is cached
    torch.manual_seed(11)
    assert learner.base_hash == again.base_hash
    assert (learner.start(1) != learner.start(2)).any()
    assert base_hash(TorchLearner(another_base)) not in ("", learner.base_hash)
    assert base_hash(TorchLearner(partial(nn.Linear, 4, 3))) == ""


def test_training_leaves_the_frozen_part_and_masks_as_they_are() -> None:
    learner, rows = TorchLearner(adapted, TRAIN), Samples(X, Y, CLASSES)
    before = learner.base_hash
    trained = learner.train(learner.start(1), rows, seed=1)
    flat = FlatModule(adapted())
    tensors = learner.name_tensors(trained).tensors
    assert tensors["0.mask"].tolist() == [True] * 10 + [False] * 2
    assert flat.names == ("1.a", "1.b")
    assert set(tensors) == {"0.scale", "0.mask", "1.a", "1.b"}
    assert learner.base_hash == before


class Norm(nn.Module):
    """A norm of one's own, whose statistic only training moves."""

    def __init__(self) -> None:
        super().__init__()
        self.batch, self.out = nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.mean.lerp_(x.mean(0), 0.1)
        return self.out(self.batch(x - self.mean))


class FrozenNorm(Norm):
    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(mode)
        self.batch.eval()
        return self


class Counting(nn.Linear):
    """A counter that evaluation moves, too: by an assignment, in place, or by a function."""

    def __init__(self, hook: bool = False) -> None:
        super().__init__(FEATURES, CLASSES)
        self.register_buffer("rows", torch.zeros(1))
        if hook:
            self.register_forward_hook(lambda layer, inputs, outputs: None)


class AddsTo(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        return super().forward(x)


class AddsInPlace(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.rows.add_(len(x))
        return super().forward(x)


class AddsElsewhere(Counting):
    def forward(self, x: Tensor) -> Tensor:
        torch.add(self.rows, len(x), out=self.rows)
        return super().forward(x)


@pytest.mark.parametrize(
    ("build", "buffers"),
    [
        (Norm, ("mean", "batch.running_mean", "batch.running_var")),
        (FrozenNorm, ("mean",)),
        (partial(nn.BatchNorm1d, FEATURES, track_running_stats=False), ()),
        (partial(nn.utils.parametrizations.spectral_norm, nn.Linear(4, 3)), ("_u", "_v")),
        (partial(Counting, hook=True), ("rows",)),
        (Counting, ()),
        (AddsTo, ("rows",)),
        (AddsInPlace, ("rows",)),
        (AddsElsewhere, ()),
    ],
)
def test_buffers_that_training_may_change_are_sent(build: Any, buffers: tuple[str, ...]) -> None:
    flat = FlatModule(build())
    names = tuple(name for name, _ in flat.module.named_buffers() if name in flat.names)
    assert tuple(name.removeprefix("parametrizations.weight.0.") for name in names) == buffers


def test_a_buffer_that_changes_against_the_rule_is_an_error() -> None:
    learner, rows = TorchLearner(AddsElsewhere, TRAIN), Samples(X, Y, CLASSES)
    with pytest.raises(ConfigError, match=r"training changed 'rows', which the client would not send"):
        learner.train(learner.start(0), rows, seed=0)


def test_a_module_without_trainable_parameters_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Scaled has nothing to train: none of its 0 parameters"):
        TorchLearner(Scaled).start(0)
