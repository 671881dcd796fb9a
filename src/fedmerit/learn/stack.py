"""A stack of common layers with explicit forward and backward passes: no autograd, each layer in its fastest layout.

Per step of mnist-cnn at batch 10 this saves a twentieth of the time against autograd over the same
layouts, and an eighth against one layout for all:
- pooling runs channels last, where torch does it ten times faster, and before ReLU, on a quarter of the values;
- a convolution with many channels uses the faster layout of this CPU (`learn.kernels`): channels first on AVX2, where
  oneDNN then converts to its blocked layout (100 instead of 77 GFLOP/s a core), otherwise channels last;
- dense layers add their gradient, or their SGD step, inside the matrix product.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedmerit.learn.kernels import dense_forward, find_kernels

aten = torch.ops.aten
BLOCK = 16  # channels in a block of oneDNN
ROWS = 256  # rows of a dense layer's weights per step: still in the cache when they are updated, and few calls


class Written(Protocol):
    """The two passes of a layer; it stores what `backward` needs until the next `forward`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs; may overwrite x."""

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        """Take a step, or (None) add to each parameter's `grad`; return the gradient of the inputs if `below`."""


class Stack:
    """Layers in sequence under cross-entropy, or binary cross-entropy with one output."""

    def __init__(self, layers: list[Written]) -> None:
        self.layers = layers
        self.first = next((at for at, layer in enumerate(layers) if isinstance(layer, _Convolution | _Dense)), 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs; x may be overwritten."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, outputs: Tensor, y: Tensor, scale: float, step: float | None) -> None:
        """Propagate from the outputs to the parameters; the loss is `scale` times the sum over the rows."""
        gradient = _slope(outputs, y).mul_(scale)
        for at in range(len(self.layers) - 1, self.first - 1, -1):
            gradient = self.layers[at].backward(gradient, step, at > self.first)


def write_out(module: nn.Module) -> Stack | None:
    """Convert a Sequential of supported layers, all trainable, to a Stack; otherwise None."""
    layers = list(_leaves(module))
    learning = all(parameter.requires_grad for parameter in module.parameters())
    if not layers or not learning or not all(type(layer) in WRITTEN_OUT and _is_common(layer) for layer in layers):
        return None
    for at, (layer, after) in enumerate(pairwise(layers)):
        if isinstance(layer, nn.ReLU) and isinstance(after, nn.MaxPool2d):
            layers[at : at + 2] = after, layer  # the same outputs: ReLU and the maximum commute
    return Stack([WRITTEN_OUT[type(layer)](layer) for layer in layers])


class ChannelsLast(nn.Module):
    """Flatten in the memory order of the data, so that nothing is copied."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) channels last -> (N, H * W * C)."""
        return x.permute(0, 2, 3, 1).flatten(1)


class _Convolution:
    def __init__(self, layer: nn.Conv2d) -> None:
        assert layer.bias is not None  # see _is_common
        self.weight, self.bias = layer.weight, layer.bias
        padding = [size // 2 for size in layer.kernel_size] if layer.padding == "same" else layer.padding
        self.shape = [1, 1], padding, [1, 1], False, [0, 0], 1  # stride, padding, dilation, transposed, and so on
        first = layer.in_channels >= BLOCK and not find_kernels().channels_last
        self.arranged = Tensor.contiguous if first else _channels_last

    def forward(self, x: Tensor) -> Tensor:
        self.x = self.arranged(x)
        return aten.convolution(self.x, self.weight, self.bias, *self.shape)  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        wanted = [below, True, True]
        deeper, *parts = aten.convolution_backward(
            self.arranged(gradient), self.x, self.weight, [len(self.bias)], *self.shape, wanted
        )
        for parameter, part in zip((self.weight, self.bias), parts, strict=True):
            into, times = _target(parameter, step)
            into.add_(part, alpha=times)
        return deeper  # type: ignore[no-any-return]


class _Dense:
    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = layer.weight, layer.bias
        self.multiply = dense_forward(find_kernels())

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return self.multiply(x, self.weight, self.bias)

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        (into, times), (into_bias, _) = _target(self.weight, step), _target(self.bias, step)
        into_bias.add_(gradient.sum(0), alpha=times)
        deeper = gradient[:, :ROWS] @ self.weight[:ROWS] if below else gradient
        for start in range(0, len(self.weight), ROWS):
            rows = slice(start, start + ROWS)
            if below and start:
                deeper.addmm_(gradient[:, rows], self.weight[rows])
            into[rows].addmm_(gradient[:, rows].t(), self.x, alpha=times)
        return deeper


class _Pool:
    def __init__(self, layer: nn.MaxPool2d) -> None:
        sides = [layer.kernel_size] * 2 if isinstance(layer.kernel_size, int) else list(layer.kernel_size)
        self.shape = sides, sides, [0, 0], [1, 1], False  # kernel, stride, padding, dilation, ceil mode

    def forward(self, x: Tensor) -> Tensor:
        self.x = _channels_last(x)
        pooled, self.places = aten.max_pool2d_with_indices(self.x, *self.shape)
        return pooled  # type: ignore[no-any-return]

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        return aten.max_pool2d_with_indices_backward(gradient, self.x, *self.shape, self.places)  # type: ignore[no-any-return]


class _Relu:
    def __init__(self, layer: nn.ReLU) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        self.active = x.relu_()
        return self.active

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        if gradient.dim() == 4:  # the layout of `active`: with mixed layouts torch iterates element by element
            gradient = _channels_last(gradient)
        return aten.threshold_backward(gradient, self.active, 0)  # type: ignore[no-any-return]


class _Dropout:
    def __init__(self, layer: nn.Dropout) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        if not self.layer.training:
            return x
        self.scale = torch.empty_like(x).bernoulli_(1 - self.layer.p).div_(1 - self.layer.p)
        return x.mul_(self.scale)

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        return gradient.mul_(self.scale)


class _Flatten:
    def __init__(self, layer: nn.Module) -> None:
        self.last = isinstance(layer, ChannelsLast)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1) if self.last else x
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, gradient: Tensor, step: float | None, below: bool) -> Tensor:
        gradient = gradient.view(self.shape)
        return gradient.permute(0, 3, 1, 2) if self.last else gradient


WRITTEN_OUT: Mapping[type[nn.Module], Callable[[Any], Written]] = {
    nn.Conv2d: _Convolution,
    nn.Linear: _Dense,
    nn.MaxPool2d: _Pool,
    nn.ReLU: _Relu,
    nn.Dropout: _Dropout,
    nn.Flatten: _Flatten,
    ChannelsLast: _Flatten,
}
"""Layers with explicit passes."""


def _is_common(layer: nn.Module) -> bool:
    """Whether the layer's settings are supported here."""
    match layer:
        case nn.Conv2d():
            odd = all(size % 2 for size in layer.kernel_size)
            plain = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.groups == 1
            return (
                plain and layer.bias is not None and layer.padding_mode == "zeros" and (layer.padding != "same" or odd)
            )
        case nn.Linear():
            return layer.bias is not None
        case nn.MaxPool2d():
            same = layer.stride == layer.kernel_size
            return same and layer.padding == 0 and layer.dilation == 1 and not layer.ceil_mode
        case nn.Dropout():
            return layer.p < 1
        case nn.Flatten():
            return layer.start_dim == 1 and layer.end_dim == -1
    return True


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _target(parameter: Tensor, step: float | None) -> tuple[Tensor, float]:
    """Tensor to which a gradient is added, and its factor."""
    if step is not None:
        return parameter, -step
    assert parameter.grad is not None  # FlatModule gives every parameter one
    return parameter.grad, 1


def _slope(outputs: Tensor, y: Tensor) -> Tensor:
    """Gradient of the summed loss at the outputs, which it overwrites."""
    if outputs.shape[1] == 1:
        return outputs.sigmoid_().sub_(y.to(outputs.dtype).unsqueeze(1))
    slope = outputs.softmax(1)
    slope[torch.arange(len(y)), y] -= 1
    return slope


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
