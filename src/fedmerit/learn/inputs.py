"""Inputs: rows in the form that a module expects, converted on access, so that bytes stay bytes in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

Arguments: TypeAlias = Callable[[Tensor], Mapping[str, Tensor] | tuple[Tensor, ...]]
"""Turns a batch of rows into the arguments of a module, in order or by name."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Rows, converted on access."""

    x: Tensor

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Convert uint8 images to floats in 0..1, and put channels first in shape, last in memory."""
        x = self.x[rows]
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        elif x.is_floating_point():
            x = x.float()  # the type of modules; integers stay, for embeddings
        return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def call(module: Callable[..., Any], arguments: Arguments | None, batch: Tensor) -> Any:
    """Call the module with a batch, as one argument or as the arguments built from it."""
    if arguments is None:
        return module(batch)
    made = arguments(batch)
    return module(**made) if isinstance(made, Mapping) else module(*made)
