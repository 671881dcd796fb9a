"""Inputs: rows as a module wants to see them, made when they are looked at, so that bytes stay bytes in memory.

A model that is longer than its module's values carries what its inputs are centred by: the mean of each feature and,
where there is as much again, 1 / its deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedmerit.core.centring import Centring
from fedmerit.core.types import Model
from fedmerit.errors import DataError


def centring_tail(centring: Centring) -> list[Model]:
    """What follows a module's values in a centred model."""
    scale = [] if centring.deviation is None else [1 / centring.deviation]
    return [np.asarray(part, dtype=np.float32) for part in (centring.mean, *scale)]


def centre(x: Tensor, tail: Tensor) -> Tensor:
    """(x - mean) / deviation of inputs (..., features), by the tail of a model (..., 0 or 1 or 2 x features)."""
    features, known = x.shape[-1], tail.shape[-1]
    if not known:
        return x
    if known not in (features, 2 * features):
        raise DataError(f"the model is centred for {known} values, or half as many inputs; the rows have {features}")
    x = x - tail[..., :features]
    return x if known == features else x.mul_(tail[..., features:])


@dataclass(frozen=True, slots=True)
class Inputs:
    """Rows, and the tail of the model that looks at them."""

    x: Tensor
    tail: Model

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """uint8 images to floats in 0..1, centred, channels first as torch wants them and channels last in memory."""
        x = self.x[rows]
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        elif x.is_floating_point():
            x = x.float()  # as modules are; whole numbers stay, for embeddings
        if len(self.tail):
            x = centre(x.flatten(1), torch.from_numpy(self.tail)).view(x.shape)
        return x.permute(0, 3, 1, 2) if x.dim() == 4 else x
