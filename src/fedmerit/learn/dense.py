"""A dense layer that can take its SGD step inside the backward pass, without ever writing its gradient to memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Dense(nn.Linear):
    """nn.Linear; with `step` set to a learning rate, backward does W -= step * gradient as one matrix product.

    A dense layer's gradient is as large as the layer. At batch 10 writing it, adding it up and reading it back costs as
    much as computing it; here the product is added to the weights directly. Use a layer once per forward pass.
    """

    step: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x W' + b."""
        if self.step is None or not torch.is_grad_enabled():
            return super().forward(x)
        return _Descend.apply(x, self.weight, self.bias, self.step)  # type: ignore[no-any-return, no-untyped-call]


class _Descend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, step: float) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.step = step
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight, bias = ctx.saved_tensors
        below = gradient @ weight if ctx.needs_input_grad[0] else None
        weight.addmm_(gradient.t(), x, alpha=-ctx.step)
        bias.sub_(gradient.sum(0), alpha=ctx.step)
        return below, None, None, None
