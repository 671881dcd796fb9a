"""Flat parameters: a torch module whose parameters and gradients are views into two flat vectors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FlatModule:
    """A module over one float32 vector `values`: parameters first, then floating-point buffers.

    Buffers such as batch-norm's running statistics are part of the vector, so they are averaged like everything else;
    integer buffers (batch-norm's step counter) stay with the process and influence nothing that is averaged.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.module = module
        self.values = torch.empty(_count([*parameters, *buffers]))
        self.gradient = torch.zeros(_count(parameters))
        self.trained = self.values[: len(self.gradient)]
        place = 0
        for tensor in [*parameters, *buffers]:
            view = _view(self.values, place, tensor)
            view.copy_(tensor.detach())
            tensor.data = view
            place += tensor.numel()
        place = 0
        for parameter in parameters:
            parameter.grad = _view(self.gradient, place, parameter)
            place += parameter.numel()


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _view(flat: Tensor, place: int, like: Tensor) -> Tensor:
    """A view of `like`'s shape; convolution kernels channels last, the layout the convolutions run in."""
    part = flat[place : place + like.numel()]
    if like.dim() == 4:
        out, into, height, width = like.shape
        return part.view(out, height, width, into).permute(0, 3, 1, 2)
    return part.view(like.shape)
