"""Many small models together: SGD of a stack of dense layers as batched matrix products.

A tiny model spends its time between operations, not in them. `train_batched`: one operation serves a group of clients,
each with separate parameters, rows and batches; a client with fewer steps pauses in the remaining ones. `train_shared`:
one operation serves many models on the same batches of one client.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmerit.config.schema import TrainConfig
from fedmerit.core.types import Model, Samples
from fedmerit.learn.flat import FlatModule

LARGEST = 500_000  # parameters; above that a layer's product is long enough for one client


def is_dense_stack(flat: FlatModule) -> bool:
    """Whether the module can be batched: Flatten, then dense layers with ReLU between them and several outputs.

    Dropout may stand before a dense layer.
    """
    if flat.stack is None or not isinstance(flat.module, nn.Sequential):
        return False
    kinds = [type(layer) for layer in flat.module]
    plain = [kind for kind in kinds if kind is not nn.Dropout]
    stack = [nn.Flatten, nn.Linear, *[nn.ReLU, nn.Linear] * ((len(plain) - 2) // 2)]
    before_dense = all(after is nn.Linear for kind, after in pairwise(kinds) if kind is nn.Dropout)
    small = len(flat.values) <= LARGEST
    return plain == stack and before_dense and kinds[-1] is nn.Linear and small and _dense(flat)[-1].out_features > 1


def train_batched(
    flat: FlatModule,
    config: TrainConfig,
    models: Sequence[Model],
    samples: Sequence[Samples],
    batches: Sequence[Sequence[Tensor]],
    seeds: Sequence[int],
) -> list[Model]:
    """Return the models after every client's batches; dropout draws from each client's seed."""
    values = torch.from_numpy(np.stack(models))
    layers = [_Layer(values, layer, rate, config) for layer, rate in zip(_dense(flat), _dropouts(flat), strict=True)]
    by_size = config.momentum or any(layer.dropout for layer in layers)  # only these depend on a batch's size
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    x, y, starts = _side_by_side(samples)
    for number, (rows, scale) in enumerate(zip(*steps_of(batches, starts), strict=True)):
        sizes = [len(own[number]) if number < len(own) else 0 for own in batches] if by_size else ()
        _step(layers, x[rows], y[rows], scale, sizes, draws)
    return list(values.numpy())


class _Layer:
    """A dense layer of all clients, with the values that its backward pass needs."""

    def __init__(self, values: Tensor, layer: nn.Linear, dropout: float, config: TrainConfig) -> None:
        self.weight, self.bias = _of_each_client(values, layer)
        self.dropout, self.lr, self.momentum = dropout, config.lr, config.momentum
        moving = (self.weight, self.bias) if config.momentum else ()
        self.velocities = [torch.zeros_like(one, memory_format=torch.contiguous_format) for one in moving]

    def forward(self, x: Tensor, sizes: Sequence[int], draws: Sequence[torch.Generator]) -> Tensor:
        """Return the outputs; `self.x` stores the inputs after dropout, `self.scale` the dropout mask."""
        self.scale = _drawn(x, self.dropout, sizes, draws) if self.dropout else None
        self.x = x if self.scale is None else x * self.scale
        return torch.baddbmm(self.bias, self.x, self.weight.transpose(1, 2))

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient below this layer and the ReLU before it, with the weights before `step`."""
        deeper = torch.bmm(gradient, self.weight).mul_(self.x > 0)
        return deeper if self.scale is None else deeper.mul_(self.scale)

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """w = w - lr * v with v = momentum * v + g, for active clients; v = g without momentum."""
        if active is None:
            self.weight.baddbmm_(gradient.transpose(1, 2), self.x, alpha=-self.lr)
            self.bias.sub_(gradient.sum(dim=1, keepdim=True), alpha=self.lr)
            return
        of_weight, of_bias = self.velocities
        of_weight.baddbmm_(gradient.transpose(1, 2), self.x, beta=self.momentum)
        of_bias.mul_(self.momentum).add_(gradient.sum(dim=1, keepdim=True))
        for values, velocity in zip((self.weight, self.bias), self.velocities, strict=True):
            values.addcmul_(velocity, active, value=-self.lr)


def _drawn(x: Tensor, rate: float, sizes: Sequence[int], draws: Sequence[torch.Generator]) -> Tensor:
    """Dropout mask of 0 or 1 / (1 - rate), drawn for each client as in separate training."""
    scale = torch.zeros_like(x)
    for own, size, draw in zip(scale, sizes, draws, strict=True):
        own[:size].copy_(torch.empty_like(own[:size]).bernoulli_(1 - rate, generator=draw).div_(1 - rate))
    return scale


def outputs_batched(flat: FlatModule, models: NDArray[np.float32], x: Tensor) -> Tensor:
    """Outputs of m models for the same rows x (N, features): (m, N, outputs).

    The rows are shared, so the first layers of all models are one matrix product.
    """
    values = torch.from_numpy(models)
    (weight, bias), *rest = (_of_each_client(values, layer) for layer in _dense(flat))
    first = x @ weight.flatten(0, 1).t()  # (N, m * out)
    outputs = first.view(len(x), len(models), -1).transpose(0, 1).contiguous().add_(bias)
    for weight, bias in rest:
        outputs = torch.baddbmm(bias, outputs.relu_(), weight.transpose(1, 2))
    return outputs


def train_shared(
    flat: FlatModule, lr: float, models: NDArray[np.float32], samples: Samples, batches: Sequence[Tensor]
) -> NDArray[np.float32]:
    """Return m models (m, values) after plain SGD on the same batches of one client.

    All models read the same rows, so their first layers are one layer with m times the outputs: one matrix product
    forward and one for its step. Further layers are batched products. Updates `models` in place.
    """
    values, dense = torch.from_numpy(models), _dense(flat)
    x, y, _ = _side_by_side([samples])
    first, *rest = (_of_each_client(values, layer) for layer in dense)
    # Copies, because the models' rows are not contiguous: as views they cannot be one matrix.
    wide, bias = first[0].flatten(0, 1).clone(), first[1].flatten().clone()
    for rows in batches:
        inputs, scale = x[rows], lr / len(rows)
        outputs = torch.addmm(bias, inputs, wide.t()).view(len(rows), len(models), -1).transpose(0, 1)
        hidden = []
        for weight, offset in rest:
            hidden.append(outputs.relu().contiguous())
            outputs = torch.baddbmm(offset, hidden[-1], weight.transpose(1, 2))
        gradient = outputs.softmax(dim=2)
        gradient.scatter_add_(2, y[rows].expand(len(models), -1).unsqueeze(2), torch.full_like(gradient[:, :, :1], -1))
        gradient.mul_(scale)
        for (weight, offset), below in zip(reversed(rest), reversed(hidden), strict=True):
            deeper = torch.bmm(gradient, weight).mul_(below > 0)
            weight.baddbmm_(gradient.transpose(1, 2), below, alpha=-1)
            offset.sub_(gradient.sum(dim=1, keepdim=True))
            gradient = deeper
        flat_gradient = gradient.transpose(0, 1).reshape(len(rows), -1)
        wide.addmm_(flat_gradient.t(), inputs, alpha=-1)
        bias.sub_(flat_gradient.sum(dim=0))
    first[0].copy_(wide.view_as(first[0]))
    first[1].copy_(bias.view_as(first[1]))
    return models


def _step(
    layers: Sequence[_Layer],
    x: Tensor,
    y: Tensor,
    scale: Tensor,
    sizes: Sequence[int],
    draws: Sequence[torch.Generator],
) -> None:
    """One SGD step of every client: x (clients, batch, features), y and scale (clients, batch).

    The gradient of cross-entropy at the last outputs z is softmax(z) - onehot(y), times `scale` = 1 / batch; below a
    dense layer with weights W it is that times W, where ReLU is active.
    """
    for place, layer in enumerate(layers):
        x = layer.forward(x, sizes, draws)
        x = x.relu_() if place < len(layers) - 1 else x
    gradient = x.softmax(dim=2)
    gradient.scatter_add_(2, y.unsqueeze(2), torch.full_like(gradient[:, :, :1], -1.0))
    gradient.mul_(scale.unsqueeze(2))
    active = torch.tensor([float(size > 0) for size in sizes]).view(-1, 1, 1) if layers[0].velocities else None
    for layer in reversed(layers):
        deeper = layer.backward(gradient) if layer is not layers[0] else gradient
        layer.step(gradient, active)
        gradient = deeper


def _dropouts(flat: FlatModule) -> list[float]:
    """Dropout rate before each dense layer."""
    kinds = [layer for layer in flat.module.modules() if isinstance(layer, nn.Linear | nn.Dropout)]
    before = [None, *kinds]
    return [
        one.p if isinstance(one, nn.Dropout) else 0.0
        for one, layer in zip(before, kinds, strict=False)
        if isinstance(layer, nn.Linear)
    ]


def _dense(flat: FlatModule) -> list[nn.Linear]:
    return [layer for layer in flat.module.modules() if isinstance(layer, nn.Linear)]


def _of_each_client(values: Tensor, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weights (clients, out, in) and biases (clients, 1, out) of a layer as views of all clients' vectors."""
    at, there = layer.weight.storage_offset(), layer.bias.storage_offset()
    weight = values[:, at : at + layer.weight.numel()].view(-1, layer.out_features, layer.in_features)
    return weight, values[:, there : there + layer.out_features].unsqueeze(1)


def _side_by_side(samples: Sequence[Samples]) -> tuple[Tensor, Tensor, list[int]]:
    """Concatenate all clients' rows, flattened, and return the first row of each client."""
    x = torch.from_numpy(np.concatenate([part.x.reshape(len(part), -1) for part in samples]))
    y = torch.from_numpy(np.concatenate([part.y for part in samples]))
    x = x.float().div_(255) if x.dtype == torch.uint8 else x.float() if x.is_floating_point() else x
    return x, y, [0, *np.cumsum([len(part) for part in samples])[:-1].tolist()]


def steps_of(batches: Sequence[Sequence[Tensor]], starts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Rows of every client's batch per step, and 1 / its size as their scale; 0 for padding."""

    steps, width = max(map(len, batches)), max(len(batch) for own in batches for batch in own)
    rows = torch.zeros((steps, len(batches), width), dtype=torch.int64)
    scale = torch.zeros((steps, len(batches), width))
    for client, (own, start) in enumerate(zip(batches, starts, strict=True)):
        for step, batch in enumerate(own):
            rows[step, client, : len(batch)] = batch + start
            scale[step, client, : len(batch)] = 1 / len(batch)
    return rows, scale
