"""Inputs: rows in the form that a module expects, converted on access, so that bytes stay bytes in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedmerit.errors import DataError

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


@dataclass(frozen=True)
class Parts:
    """Inputs of a module with several arguments: name and row shape of each, stored side by side in one table.

    `join` builds the rows of a federation; as `inputs` of a `TorchLearner`, it passes each part to the module by name,
    in its shape.

    >>> parts = Parts({"age": (1,), "scan": (1, 2, 2)})
    >>> rows = parts.join(age=[[40.0], [70.0]], scan=np.ones((2, 1, 2, 2)))
    >>> rows.shape, {name: tuple(part.shape) for name, part in parts(torch.from_numpy(rows)).items()}
    ((2, 5), {'age': (2, 1), 'scan': (2, 1, 2, 2)})
    """

    shapes: Mapping[str, tuple[int, ...]]

    def join(self, **parts: ArrayLike) -> NDArray[np.float32]:
        """Join the parts' arrays, one row per sample each, into one table."""
        if set(parts) != set(self.shapes):
            raise DataError(f"join needs the parts {', '.join(self.shapes)} (got {', '.join(parts) or 'none'})")
        arrays = {name: np.asarray(parts[name], dtype=np.float32) for name in self.shapes}
        for name, array in arrays.items():
            rows = len(next(iter(arrays.values())))
            if array.shape != (rows, *self.shapes[name]):
                raise DataError(f"part {name!r} must have shape {(rows, *self.shapes[name])} (got {array.shape})")
        return np.concatenate([array.reshape(len(array), -1) for array in arrays.values()], axis=1)

    def __call__(self, batch: Tensor) -> dict[str, Tensor]:
        """Split a batch into its parts, each in its shape."""
        widths = [math.prod(shape) for shape in self.shapes.values()]
        if batch.dim() != 2 or batch.shape[1] != sum(widths):
            raise DataError(f"the parts need {sum(widths)} values per row (got rows of {tuple(batch.shape[1:])})")
        columns = batch.split(widths, dim=1)  # type: ignore[no-untyped-call]
        named = zip(self.shapes.items(), columns, strict=True)
        return {name: column.reshape(len(batch), *shape) for (name, shape), column in named}


def call(module: Callable[..., Any], arguments: Arguments | None, batch: Tensor) -> Any:
    """Call the module with a batch, as one argument or as the arguments built from it."""
    if arguments is None:
        return module(batch)
    made = arguments(batch)
    return module(**made) if isinstance(made, Mapping) else module(*made)
