"""Optimizers on flat vectors; their state lasts for one client's round."""

import math

import torch
from torch import Tensor

from fedmerit.config.schema import TrainConfig

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's settings, PyTorch's defaults; tune only `train.lr`."""


class Sgd:
    """SGD with momentum: v = momentum * v + g; w = w - lr * v."""

    def __init__(self, lr: float, momentum: float, like: Tensor) -> None:
        self.lr, self.momentum = lr, momentum
        self.velocity = torch.zeros_like(like) if momentum else None

    def __call__(self, values: Tensor, gradient: Tensor) -> None:
        """One step."""
        if self.velocity is not None:
            gradient = self.velocity.mul_(self.momentum).add_(gradient)
        values.add_(gradient, alpha=-self.lr)


class Adam:
    """Adam: w = (1 - lr * decay) w - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) [Kingma 2015].

    m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2. `decay` is AdamW's [Loshchilov 2019], 0 for Adam.
    """

    def __init__(self, lr: float, decay: float, like: Tensor) -> None:
        self.lr, self.decay, self.steps = lr, decay, 0
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)

    def __call__(self, values: Tensor, gradient: Tensor) -> None:
        """One step."""
        self.steps += 1
        values.mul_(1 - self.lr * self.decay)
        self.first.lerp_(gradient, 1 - BETA1)
        self.second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = self.second.sqrt().div_(math.sqrt(1 - BETA2**self.steps)).add_(EPSILON)
        values.addcdiv_(self.first, root, value=-self.lr / (1 - BETA1**self.steps))


def make_optimizer(config: TrainConfig, like: Tensor) -> Sgd | Adam:
    """Return a new optimizer as [train] configures it."""
    if config.optimizer == "sgd":
        return Sgd(config.lr, config.momentum, like)
    return Adam(config.lr, config.weight_decay if config.optimizer == "adamw" else 0.0, like)
