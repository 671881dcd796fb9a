"""The fastest local SGD we could arrange by hand in PyTorch: forward and backward written out, no autograd.

- images, pooling and ReLU channels last: torch's max-pool is ten times faster there;
- the second convolution channels first: on AVX2 oneDNN's own blocked layout makes 100 instead of 77 GFLOP/s a core;
- or (`last`) channels last throughout, as is faster on AVX-512, with the first convolution as a product with columns
  of pixels that are made once per client and kept over its epochs;
- pooling before ReLU, on a quarter of the values;
- dense layers add their step to the weights inside the matrix product; no gradient of theirs is ever written;
- a large batch in parts that fit the cache; memory kept by the process instead of given back after each part.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn.functional import unfold

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

    def __init__(self, values: list[Tensor], gradients: list[Tensor], last: bool) -> None:
        self.values, self.gradients = values, gradients
        self.arranged = {"memory_format": LAST} if last else {}

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 1, 28, 28), or their columns (N, 784, 25) -> (N, 3136)."""
        w1, b1, w2, b2 = self.values
        self.x = x
        if x.dim() == 3:
            self.a1 = torch.addmm(b1, x.flatten(0, 1), w1.view(32, 25).t()).view(-1, 28, 28, 32).permute(0, 3, 1, 2)
        else:
            self.a1 = aten.convolution(x, w1, b1, *CONV)
        self.p1, self.i1 = aten.max_pool2d_with_indices(self.a1, *POOL)
        self.q1 = self.p1.relu_().contiguous(**self.arranged)
        self.a2 = aten.convolution(self.q1, w2, b2, *CONV).contiguous(memory_format=LAST)
        self.p2, self.i2 = aten.max_pool2d_with_indices(self.a2, *POOL)
        return self.p2.relu_().permute(0, 2, 3, 1).flatten(1)

    def backward(self, gradient: Tensor) -> None:
        """From the gradient of the outputs to those of the kernels."""
        w1, _, w2, _ = self.values
        g2 = gradient.view(-1, 7, 7, 64).permute(0, 3, 1, 2)
        g2 = aten.threshold_backward(g2, self.p2, 0)
        g2 = aten.max_pool2d_with_indices_backward(g2, self.a2, *UNPOOL, self.i2).contiguous(**self.arranged)
        g1, gw2, gb2 = aten.convolution_backward(g2, self.q1, w2, [64], *CONV, [True, True, True])
        g1 = aten.threshold_backward(g1.contiguous(memory_format=LAST), self.p1, 0)
        g1 = aten.max_pool2d_with_indices_backward(g1, self.a1, *UNPOOL, self.i1)
        if self.x.dim() == 3:
            g1 = g1.permute(0, 2, 3, 1).reshape(-1, 32)
            gw1, gb1 = (g1.t() @ self.x.flatten(0, 1)).view_as(w1), g1.sum(0)
        else:
            _, gw1, gb1 = aten.convolution_backward(g1, self.x, w1, [32], *CONV, [False, True, True])
        for total, part in zip(self.gradients, (gw1, gb1, gw2, gb2), strict=True):
            total.add_(part)


class HandArranged:
    """The network over one flat vector `values`; `last`: channels last throughout, over kept columns."""

    def __init__(self, job: Job, last: bool) -> None:
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
        self.convolutions = Convolutions(values[:4], gradients[:4], last) if first else None
        self.dense = [Dense(*values[at : at + 2], *gradients[at : at + 2]) for at in (first, first + 2)]
        self.small = sum(sizes[:first])  # how many of the values belong to the convolutions
        for value in values:
            value.normal_(0, 0.05) if value.dim() > 1 else value.zero_()
        self.last = last

    def prepare(self, x: Tensor) -> Tensor:
        """A client's images (N, 28, 28, 1) as `step` wants their rows: as they are, or as columns of 25 pixels."""
        if not self.last or self.convolutions is None:
            return x
        return unfold(x.permute(0, 3, 1, 2).float().div_(255), 5, padding=2).transpose(1, 2).contiguous()

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, lr: float) -> None:
        """One step of SGD on prepared rows."""
        whole = len(y) <= PART
        size = self.small if whole else len(self.gradient)
        self.gradient[:size].zero_()
        for images, labels in zip(x.split(PART), y.split(PART), strict=True):
            self.part(
                images.float().div_(255) if images.dtype == torch.uint8 else images,
                labels,
                1 / len(y),
                lr if whole else None,
            )
        self.values[:size].sub_(self.gradient[:size], alpha=lr)

    def part(self, x: Tensor, y: Tensor, scale: float, step: float | None) -> None:
        """Forward and backward on rows that fit the cache."""
        hidden, last = self.dense
        rows = (
            self.convolutions.forward(x if x.dim() == 3 else x.permute(0, 3, 1, 2))
            if self.convolutions
            else x.flatten(1)
        )
        active = hidden.forward(rows).relu_()
        gradient = last.forward(active).softmax(1)
        gradient[torch.arange(len(y)), y] -= 1
        below = last.backward(gradient.mul_(scale), step, below=True)
        below = hidden.backward(aten.threshold_backward(below, active, 0), step, below=self.convolutions is not None)
        if self.convolutions:
            self.convolutions.backward(below)
