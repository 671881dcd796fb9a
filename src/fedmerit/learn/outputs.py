"""Outputs of a module: the prediction for each target, and the loss for training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedmerit.core.targets import Number, Target


class ClassOutput:
    """One logit per class, or one logit for the second of two classes."""

    def prepare(self, y: NDArray[Any]) -> Tensor:
        """Return the labels unchanged."""
        return torch.from_numpy(y)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy; for a single output binary cross-entropy on its logit."""
        if outputs.shape[1] == 1:
            return binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs.dtype), reduction="sum")
        return cross_entropy(outputs, y, reduction="sum")

    def decide(self, outputs: Tensor) -> Tensor:
        """The largest logit; for a single output, whether it is positive."""
        return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Softmax, or (1 - p, p) with p the sigmoid of the single logit."""
        if outputs.shape[1] > 1:
            return outputs.softmax(dim=1)
        positive = outputs.sigmoid()
        return torch.cat([1 - positive, positive], dim=1)


@dataclass(frozen=True, slots=True)
class NumberOutput:
    """One value z, which means centre + scale * z."""

    target: Number

    def prepare(self, y: NDArray[Any]) -> Tensor:
        """(y - centre) / scale."""
        return torch.from_numpy(((y - self.target.centre) / self.target.scale).astype(np.float32))

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Squared error."""
        return mse_loss(_single(outputs), y, reduction="sum")

    def decide(self, outputs: Tensor) -> Tensor:
        """The number, in units of the label."""
        return _single(outputs).double() * self.target.scale + self.target.centre

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Raise: numbers have no probabilities."""
        raise ValueError("a target that is a number has no probabilities; use a target of classes")


Output: TypeAlias = ClassOutput | NumberOutput
"""Interpretation of a module's outputs (rows, values)."""


def output_of(target: Target) -> Output:
    """Return the interpretation of outputs for this target."""
    return NumberOutput(target) if isinstance(target, Number) else ClassOutput()


def logits(outputs: Any) -> Tensor:
    """Return the outputs, or `logits` if the module returns a mapping."""
    if not isinstance(outputs, Mapping):
        return cast(Tensor, outputs)
    if "logits" not in outputs:
        raise ValueError(f"a module that returns a mapping needs the key 'logits' (got {', '.join(map(str, outputs))})")
    return cast(Tensor, outputs["logits"])


def _single(outputs: Tensor) -> Tensor:
    """Single value of each row, from outputs (rows, 1) or (rows,)."""
    if outputs.dim() == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    if outputs.dim() != 1:
        raise ValueError(f"a module that predicts a number needs one output (got {tuple(outputs.shape[1:])})")
    return outputs
