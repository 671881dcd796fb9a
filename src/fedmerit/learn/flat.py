"""Flat parameters: a torch module whose parameters and gradients are views into two flat vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedmerit.core.learner import NamedTensors
from fedmerit.learn.devices import CPU, fetch
from fedmerit.learn.stack import write_out


class FlatModule:
    """A module over one float32 vector `values`: trained parameters, then frozen parameters and buffers.

    Buffers such as batch-norm's running statistics are part of the vector, so they are averaged too; integer buffers
    (batch-norm's step counter) start from 0 for every client.
    """

    def __init__(self, module: nn.Module, device: str = CPU) -> None:
        self.module, self.device = module.to(device), device
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
        buffers = [*frozen, *(buffer for buffer in module.buffers() if buffer.is_floating_point())]
        self._parameters = parameters
        self._counters = [buffer for buffer in module.buffers() if not buffer.is_floating_point()]
        self.shapes = tuple(tensor.shape for tensor in (*parameters, *buffers))
        self.has_buffers = len(buffers) > len(frozen)
        self.values = torch.empty(_count([*parameters, *buffers]), device=device)
        self.trained = self.values[: _count(parameters)]
        self.gradient = torch.zeros_like(self.trained)
        _lay(self.values, [*parameters, *buffers])
        for parameter, view in zip(parameters, _views(self.gradient, parameters), strict=True):
            parameter.grad = view
        self.stack = write_out(module) if device == CPU else None

    @property
    def names(self) -> tuple[str, ...]:
        """The module's names for the parts of the vector, in order."""
        named = list(self.module.named_parameters())
        learning = [name for name, parameter in named if parameter.requires_grad]
        frozen = [name for name, parameter in named if not parameter.requires_grad]
        buffers = [name for name, buffer in self.module.named_buffers() if buffer.is_floating_point()]
        return (*learning, *frozen, *buffers)

    def name_tensors(self) -> NamedTensors:
        """Copy the module's `state_dict`, and the buffers in the vector that torch does not persist."""
        state = {name: value for name, value in self.module.state_dict().items() if isinstance(value, Tensor)}
        beside = {name: buffer for name, buffer in self.module.named_buffers() if name in self.names}
        beside = {name: buffer for name, buffer in beside.items() if name not in state}
        tensors = {name: fetch(value.detach()).copy() for name, value in {**state, **beside}.items()}
        return NamedTensors(tensors, self.names, tuple(beside))

    def load(self, values: Tensor) -> None:
        """Load a model."""
        self.values.copy_(values)
        for counter in self._counters:
            counter.zero_()

    def add_gradients(self, loss: Tensor, step: float | None) -> None:
        """Add the gradients of a loss to `gradient`, or step down them at once by this length: the same bits."""
        if step is None:
            loss.backward()  # type: ignore[no-untyped-call]
            return
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        pairs = [(own, part) for own, part in zip(self._parameters, gradients, strict=True) if part is not None]
        with torch.no_grad():
            torch._foreach_add_([own for own, _ in pairs], [part for _, part in pairs], alpha=-step)

    @property
    def rows_are_independent(self) -> bool:
        """Whether the gradients of parts of a batch can be added up: not with batch-norm."""
        return not any(isinstance(layer, _BatchNorm) for layer in self.module.modules())


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _lay(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the tensors into the vector and make each of them a view into it."""
    for tensor, view in zip(tensors, _views(flat, tensors), strict=True):
        view.copy_(tensor.detach())
        tensor.data = view


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat[: _count(like)].split([tensor.numel() for tensor in like])  # type: ignore[no-untyped-call]
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
