"""Several clients at once: plain SGD of a stack of dense layers as batched matrix products.

A tiny model spends its time between operations, not in them. Here one operation serves a group of clients, each with
its own parameters, rows and batches; a client with fewer steps than others has zero gradients in the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmerit.core.types import Model, Samples
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.inputs import centre

LARGEST = 500_000  # parameters; above that a layer's product is long enough by itself


def is_dense_stack(flat: FlatModule) -> bool:
    """Whether the module is Flatten, then dense layers with ReLU between them and several outputs: all we can batch."""
    if flat.stack is None or not isinstance(flat.module, nn.Sequential):
        return False
    kinds = [type(layer) for layer in flat.module]
    stack = [nn.Flatten, nn.Linear, *[nn.ReLU, nn.Linear] * ((len(kinds) - 2) // 2)]
    return kinds == stack and len(flat.values) <= LARGEST and _dense(flat)[-1].out_features > 1


def train_batched(
    flat: FlatModule,
    lr: float,
    models: Sequence[Model],
    samples: Sequence[Samples],
    batches: Sequence[Sequence[Tensor]],
) -> list[Model]:
    """The models after every client's own batches."""
    values = torch.from_numpy(np.stack(models))
    layers = [_of_each_client(values, layer) for layer in _dense(flat)]
    x, y, starts = _side_by_side(samples)
    tails = values[:, len(flat.values) :].unsqueeze(1)  # what each client's inputs are centred by, if by anything
    for rows, scale in _steps(batches, starts):
        _step(layers, lr, centre(x[rows], tails), y[rows], scale)
    return list(values.numpy())


def outputs_batched(flat: FlatModule, models: NDArray[np.float32], x: Tensor) -> Tensor:
    """What m models say of the same rows x (N, features): (m, N, outputs).

    The rows are the same for all, so the first layers of all models are one matrix product.
    """
    values = torch.from_numpy(models)
    (weight, bias), *rest = (_of_each_client(values, layer) for layer in _dense(flat))
    first = x @ weight.flatten(0, 1).t()  # (N, m * out)
    found = first.view(len(x), len(models), -1).transpose(0, 1).contiguous().add_(bias)
    for weight, bias in rest:
        found = torch.baddbmm(bias, found.relu_(), weight.transpose(1, 2))
    return found


def _step(layers: list[tuple[Tensor, Tensor]], lr: float, x: Tensor, y: Tensor, scale: Tensor) -> None:
    """One SGD step of every client: x (clients, batch, features), y and scale (clients, batch).

    The gradient of cross-entropy at the last outputs z is softmax(z) - onehot(y), times `scale` = 1 / batch; below a
    dense layer with weights W it is that times W, where ReLU let the input pass.
    """
    inputs = []
    for place, (weight, bias) in enumerate(layers):
        inputs.append(x)
        x = torch.baddbmm(bias, x, weight.transpose(1, 2))
        x = x.relu_() if place < len(layers) - 1 else x
    gradient = x.softmax(dim=2)
    gradient.scatter_add_(2, y.unsqueeze(2), torch.full_like(gradient[:, :, :1], -1.0))
    gradient.mul_(scale.unsqueeze(2))
    for (weight, bias), below in zip(reversed(layers), reversed(inputs), strict=True):
        deeper = torch.bmm(gradient, weight).mul_(below > 0) if below is not inputs[0] else None
        weight.baddbmm_(gradient.transpose(1, 2), below, alpha=-lr)
        bias.sub_(gradient.sum(dim=1, keepdim=True), alpha=lr)
        gradient = gradient if deeper is None else deeper


def _dense(flat: FlatModule) -> list[nn.Linear]:
    return [layer for layer in flat.module.modules() if isinstance(layer, nn.Linear)]


def _of_each_client(values: Tensor, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """The layer's weights (clients, out, in) and biases (clients, 1, out) as views of all clients' vectors."""
    at, there = layer.weight.storage_offset(), layer.bias.storage_offset()
    weight = values[:, at : at + layer.weight.numel()].view(-1, layer.out_features, layer.in_features)
    return weight, values[:, there : there + layer.out_features].unsqueeze(1)


def _side_by_side(samples: Sequence[Samples]) -> tuple[Tensor, Tensor, list[int]]:
    """All clients' rows one after the other, flattened, and where each client's begin."""
    x = torch.from_numpy(np.concatenate([part.x.reshape(len(part), -1) for part in samples]))
    y = torch.from_numpy(np.concatenate([part.y for part in samples]))
    x = x.float().div_(255) if x.dtype == torch.uint8 else x.float() if x.is_floating_point() else x
    return x, y, [0, *np.cumsum([len(part) for part in samples])[:-1].tolist()]


def _steps(batches: Sequence[Sequence[Tensor]], starts: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Per step the rows of every client's batch, and 1 / its size for them; 0 for rows that only fill up."""
    steps, width = max(map(len, batches)), max(len(batch) for own in batches for batch in own)
    rows = torch.zeros((steps, len(batches), width), dtype=torch.int64)
    scale = torch.zeros((steps, len(batches), width))
    for client, (own, start) in enumerate(zip(batches, starts, strict=True)):
        for step, batch in enumerate(own):
            rows[step, client, : len(batch)] = batch + start
            scale[step, client, : len(batch)] = 1 / len(batch)
    return list(zip(rows, scale, strict=True))
