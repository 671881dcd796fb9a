"""The fastest local SGD we could arrange by hand in PyTorch: forward and backward written out, no autograd.

- images, pooling and ReLU channels last: torch's max-pool is ten times faster there;
- the second convolution channels first: oneDNN then uses its own blocked layout, 100 instead of 77 GFLOP/s a core here;
- pooling before ReLU, on a quarter of the values;
- dense layers add their step to the weights inside the matrix product; no gradient of theirs is ever written;
- a large batch in parts that fit the cache; memory kept by the process instead of given back after each part.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from peers.common import Job

aten = torch.ops.aten
LAST = torch.channels_last
CONV = ([1, 1], [2, 2], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output padding, groups
POOL = ([2, 2], [2, 2])
UNPOOL = (*POOL, [0, 0], [1, 1], False)
PART = 100


def keep_memory() -> None:
    """Tell glibc not to return freed memory: else every large part costs thousands of page faults."""
    libc = ctypes.CDLL(None)
    for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        libc.mallopt(option, 1 << 30)


class Dense:
    """Weights and bias as views; x -> x W' + b."""

    def __init__(self, weight: Tensor, bias: Tensor, weight_gradient: Tensor, bias_gradient: Tensor) -> None:
        self.weight, self.bias = weight, bias
        self.weight_gradient, self.bias_gradient = weight_gradient, bias_gradient

    def forward(self, x: Tensor) -> Tensor:
        """The layer's outputs."""
        self.x = x
        return torch.addmm(self.bias, x, self.weight.t())

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor | None:
        """Step at once, or (None) add up the gradient; the gradient of the inputs where it is needed."""
        result = gradient @ self.weight if below else None
        if step is None:
            self.weight_gradient.addmm_(gradient.t(), self.x)
            self.bias_gradient.add_(gradient.sum(0))
        else:
            self.weight.addmm_(gradient.t(), self.x, alpha=-step)
            self.bias.sub_(gradient.sum(0), alpha=step)
        return result


class Convolutions:
    """Two 5x5 convolutions, each with pooling and ReLU; gradients are added up."""

    def __init__(self, values: list[Tensor], gradients: list[Tensor]) -> None:
        self.values, self.gradients = values, gradients

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 1, 28, 28) -> (N, 3136)."""
        w1, b1, w2, b2 = self.values
        self.x, self.a1 = x, aten.convolution(x, w1, b1, *CONV)
        self.p1, self.i1 = aten.max_pool2d_with_indices(self.a1, *POOL)
        self.q1 = self.p1.relu_().contiguous()
        self.a2 = aten.convolution(self.q1, w2, b2, *CONV).contiguous(memory_format=LAST)
        self.p2, self.i2 = aten.max_pool2d_with_indices(self.a2, *POOL)
        return self.p2.relu_().permute(0, 2, 3, 1).flatten(1)

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the outputs to those of the kernels."""
        w1, _, w2, _ = self.values
        g2 = gradient.view(-1, 7, 7, 64).permute(0, 3, 1, 2)
        g2 = aten.threshold_backward(g2, self.p2, 0)
        g2 = aten.max_pool2d_with_indices_backward(g2, self.a2, *UNPOOL, self.i2).contiguous()
        g1, gw2, gb2 = aten.convolution_backward(g2, self.q1, w2, [64], *CONV, [True, True, True])
        g1 = aten.threshold_backward(g1.contiguous(memory_format=LAST), self.p1, 0)
        g1 = aten.max_pool2d_with_indices_backward(g1, self.a1, *UNPOOL, self.i1)
        _, gw1, gb1 = aten.convolution_backward(g1, self.x, w1, [32], *CONV, [False, True, True])
        for total, part in zip(self.gradients, (gw1, gb1, gw2, gb2), strict=True):
            total.add_(part)


class HandArranged:
    """The network over one flat vector `values`."""

    def __init__(self, job: Job) -> None:
        convolutions = [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,)] if job.network == "cnn" else []
        into = 3136 if convolutions else 784
        shapes = [*convolutions, (job.hidden, into), (job.hidden,), (job.outputs, job.hidden), (job.outputs,)]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        self.values, self.gradient = torch.empty(sum(sizes)), torch.zeros(sum(sizes))
        values, gradients = (
            [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
            for flat in (self.values, self.gradient)
        )
        first = len(convolutions)
        self.convolutions = Convolutions(values[:4], gradients[:4]) if first else None
        self.dense = [Dense(*values[at : at + 2], *gradients[at : at + 2]) for at in (first, first + 2)]
        self.small = sum(sizes[:first])  # how many of the values belong to the convolutions
        for value in values:
            value.normal_(0, 0.05) if value.dim() > 1 else value.zero_()

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, lr: float) -> None:
        """One step of SGD on uint8 images (N, 28, 28, 1)."""
        whole = len(y) <= PART
        size = self.small if whole else len(self.gradient)
        self.gradient[:size].zero_()
        for images, labels in zip(x.split(PART), y.split(PART), strict=True):
            self.part(images.float().div_(255), labels, 1 / len(y), lr if whole else None)
        self.values[:size].sub_(self.gradient[:size], alpha=lr)

    def part(self, x: Tensor, y: Tensor, scale: float, step: float | None) -> None:
        """Forward and backward on rows that fit the cache."""
        hidden, last = self.dense
        rows = self.convolutions.forward(x.permute(0, 3, 1, 2)) if self.convolutions else x.flatten(1)
        active = hidden.forward(rows).relu_()
        gradient = last.forward(active).softmax(1)
        gradient[torch.arange(len(y)), y] -= 1
        below = last.backward(gradient.mul_(scale), step, below=True)
        below = hidden.backward(aten.threshold_backward(below, active, 0), step, below=self.convolutions is not None)
        if self.convolutions:
            self.convolutions.backward(below)
