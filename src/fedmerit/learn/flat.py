"""Flat parameters: a torch module whose parameters and gradients are views into two flat vectors."""

import dis
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from types import CodeType

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedmerit.core.learner import NamedTensors
from fedmerit.errors import ConfigError
from fedmerit.learn.devices import CPU, fetch
from fedmerit.learn.stack import write_out


class FlatModule:
    """A module over one float32 vector `values`: trained parameters, then the floating-point buffers that may change.

    Frozen parameters and constant buffers are not part of the vector: they stay where `build` made them, on every node.
    Buffers such as batch-norm's running statistics are part of it, so they are averaged too; integer buffers
    (batch-norm's step counter) start from their first value for every client.
    """

    def __init__(self, module: nn.Module, device: str = CPU) -> None:
        self.module, self.device = module.to(device).train(), device
        named = list(module.named_parameters())
        self._fixed = fixed_part(module)
        buffers = [(name, buffer) for name, buffer in module.named_buffers() if name not in self._fixed]
        travelling: list[tuple[str, Tensor]] = [(name, one) for name, one in named if one.requires_grad]
        self._parameters = [parameter for _, parameter in travelling]
        if not self._parameters:
            raise ConfigError(
                f"{type(module).__name__} has nothing to train: none of its {len(named)} parameters requires a "
                "gradient; call requires_grad_() on those to train"
            )
        travelling += [(name, buffer) for name, buffer in buffers if buffer.is_floating_point()]
        self._counters = [(one, one.clone()) for one in module.buffers() if not one.is_floating_point()]
        self.names = tuple(name for name, _ in travelling)
        self.shapes = tuple(tensor.shape for _, tensor in travelling)
        self.has_buffers = len(travelling) > len(self._parameters)
        tensors = [tensor for _, tensor in travelling]
        self.values = torch.empty(_count(tensors), device=device)
        self.trained = self.values[: _count(self._parameters)]
        self.gradient = torch.zeros_like(self.trained)
        _lay(self.values, tensors)
        for parameter, view in zip(self._parameters, _views(self.gradient, self._parameters), strict=True):
            parameter.grad = view
        self.stack = write_out(module) if device == CPU else None
        self._versions = {name: one._version for name, one in self._fixed.items() if one.is_floating_point()}

    @cached_property
    def base_hash(self) -> str:
        """Hash of all that is not in the vector; empty if that is nothing."""
        return hash_tensors(self._fixed)

    def check_fixed(self) -> None:
        """Raise an error if training changed a value that would stay at the client."""
        now = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())} if self._versions else {}
        for name, version in self._versions.items():
            if now[name] is not self._fixed[name] or now[name]._version != version:
                raise ConfigError(
                    f"training changed {name!r}, which the client would not send: only trainable parameters and the "
                    "buffers of layers that ask `self.training` or write them are sent; make it such a buffer, and "
                    "update it `if self.training:`"
                )

    def name_tensors(self) -> NamedTensors:
        """Copy the module's `state_dict` without frozen parameters, and the vector's buffers that torch leaves out."""
        frozen = frozen_names(self.module)
        state = {name: value for name, value in self.module.state_dict().items() if isinstance(value, Tensor)}
        beside = {name: buffer for name, buffer in self.module.named_buffers() if name in self.names}
        beside = {name: buffer for name, buffer in beside.items() if name not in state}
        chosen = {name: value for name, value in {**state, **beside}.items() if name not in frozen}
        tensors = {name: fetch(value.detach()).copy() for name, value in chosen.items()}
        return NamedTensors(tensors, self.names, tuple(beside), self.base_hash)

    def load(self, values: Tensor) -> None:
        """Load a model."""
        self.values.copy_(values)
        for counter, first in self._counters:
            counter.copy_(first)

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


def fixed_part(module: nn.Module) -> dict[str, Tensor]:
    """Frozen parameters and constant buffers of a module in training mode, by name."""
    changing = {id(buffer) for layer in module.modules() if _may_update(layer) for buffer in layer.buffers(False)}
    fixed: dict[str, Tensor] = {name: one for name, one in module.named_parameters() if not one.requires_grad}
    return fixed | {name: buffer for name, buffer in module.named_buffers() if id(buffer) not in changing}


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values; empty without tensors."""
    digest = sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(fetch(tensor.detach().contiguous().reshape(-1).view(torch.uint8)).data)
    return digest.hexdigest() if tensors else ""


def frozen_names(module: nn.Module) -> frozenset[str]:
    """Names of the parameters that are not trained, also those of tied ones."""
    named = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in named if not parameter.requires_grad)


def _may_update(layer: nn.Module) -> bool:
    """Whether training may change the layer's own buffers.

    The server knows a model before it has seen a row, so this cannot be tried out; the layer's code decides. Evaluation
    should leave a model as it is, so a layer that only training changes, such as batch-norm, asks `self.training`. A
    layer may also write its buffers without asking. Buffers are constant in a layer whose class does neither (tables,
    masks, rotary embeddings), and in one that stays in evaluation mode (a frozen batch-norm). A layer that asks for
    another reason, such as dropout, sends its buffers in vain, which is correct; a change that is not found here, for
    example by a function that gets the buffer, is found by `check_fixed`. Hooks and TorchScript may change anything.
    """
    names = {name for name, _ in layer.named_buffers(recurse=False)}
    if not names or not layer.training:
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or isinstance(layer, torch.jit.ScriptModule):
        return True
    written = [vars(kind) for kind in type(layer).__mro__ if kind is not nn.Module]
    functions = [inspect.unwrap(one) for own in written for one in own.values() if callable(one)]
    codes = [one.__code__ for one in functions if inspect.isfunction(one) and one.__name__ != "__init__"]
    return any("training" in code.co_names or _writes(code, names) for code in codes)


def _writes(code: CodeType, names: Collection[str]) -> bool:
    """Whether the code contains `self.NAME = ...`, `self.NAME += ...` or `self.NAME.add_(...)`."""
    steps = list(dis.get_instructions(code))
    stores = any(step.opname == "STORE_ATTR" and step.argval in names for step in steps)
    return stores or any(one.argval in names and str(after.argval).endswith("_") for one, after in pairwise(steps))


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
