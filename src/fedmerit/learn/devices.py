"""Devices: every line that touches one; what goes there, what comes back, how much memory is free, who is there.

Nothing here was run on an accelerator: docs/devices.md says what was tested, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmerit.errors import ConfigError, RunFailed

Precision: TypeAlias = Literal["32", "bf16-mixed"]
GIB = 2**30
CACHE_ROWS = 100  # rows per pass on a CPU: fits the cache; mnist-cnn on 600 rows made 68 GFLOP/s so, 57 in one piece
DEVICE_ROWS = 4096  # on an accelerator, which wants many
VALUES_AT_ONCE = 1 << 26  # parameters of all clients that a device trains at once
CLIENTS_AT_ONCE = 64


@dataclass(frozen=True)
class Device:
    """Where tensors lie and are worked on: `cpu`, `cuda:0`, `mps`; `bf16-mixed` multiplies in bfloat16.

    >>> Device().fetch(Device().put(np.array([1.0, 2.0], np.float32)) * 2).tolist()
    [2.0, 4.0]
    """

    name: str = "cpu"
    precision: Precision = "32"

    @property
    def is_cpu(self) -> bool:
        """Whether all is done as on a machine without accelerators."""
        return self.name == "cpu"

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.partition(":")[0]

    @property
    def part_rows(self) -> int:
        """Rows that go through a model at once."""
        return CACHE_ROWS if self.is_cpu else DEVICE_ROWS

    def clients_at_once(self, parameters: int) -> int:
        """How many clients train at once, by the length of the model alone: free memory must not decide on bits."""
        return 1 if self.is_cpu else max(1, min(CLIENTS_AT_ONCE, VALUES_AT_ONCE // max(parameters, 1)))

    def put(self, array: NDArray[Any]) -> Tensor:
        """The array on the device; on the CPU the same memory."""
        tensor = torch.from_numpy(array)
        return tensor if self.is_cpu else tensor.to(self.name)

    def fetch(self, tensor: Tensor) -> NDArray[Any]:
        """The tensor as an array; from the CPU the same memory."""
        return (tensor if self.is_cpu else tensor.cpu()).numpy()

    def empty(self, values: int) -> Tensor:
        """A vector of single precision, with anything in it."""
        return torch.empty(values, device=self.name)

    def place(self, module: nn.Module) -> nn.Module:
        """The module with its values on the device."""
        return module if self.is_cpu else module.to(self.name)

    def forward(self, module: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        """The module in this precision; its outputs, where they are not the caller's affair, in single precision."""
        if self.precision == "32":
            return module

        def mixed(x: Tensor) -> Any:
            with torch.autocast(self.kind, torch.bfloat16):
                outputs = module(x)
            return outputs.float() if isinstance(outputs, Tensor) else _single(outputs)

        return mixed

    @property
    def free_bytes(self) -> int | None:
        """Memory that is free; None where the device does not say."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info(self.name)[0])
        if self.kind == "mps":
            return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
        return None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Kernels that give the same bits again; where memory does not suffice, an error that says what is free."""
        fixed = torch.backends.cudnn.flags(deterministic=True, allow_tf32=False)
        try:
            with nullcontext() if self.is_cpu else fixed:
                yield
        except torch.OutOfMemoryError as error:
            free = self.free_bytes
            known = "an unknown amount" if free is None else f"{free / GIB:.2f} GiB"
            raise RunFailed(
                f"{self.name} ran out of memory, {known} is free: {str(error).splitlines()[0]} Set run.workers = 1, a "
                "smaller train.batch or run.device_memory, or another run.device"
            ) from error

    def describe(self) -> str:
        """Kind and make, as a run's ledger names what the bits depend on; which of several equals does not count."""
        make = f" ({torch.cuda.get_device_name(self.name)})" if self.kind == "cuda" else ""
        return f"{self.kind}{make}" + ("" if self.precision == "32" else f", {self.precision}")


CPU = Device()


class DeviceSums:
    """Weighted sums of updates on a device: the rows stay there if they fit the budget, else it sees them in parts.

    `budget` are bytes; None: half of what is free at that moment, or all where the device does not say.
    """

    def __init__(self, device: Device, rows: NDArray[np.float32], budget: int | None) -> None:
        self._device, self._rows, self._budget = device, rows, budget
        self._kept: tuple[NDArray[np.intp], Tensor] | None = None

    def renewed(self) -> DeviceSums:
        """The same, with nothing on the device: for who wrote to the rows."""
        return DeviceSums(self._device, self._rows, self._budget)

    def __call__(self, weights: NDArray[np.float32], places: NDArray[np.intp]) -> NDArray[np.float32]:
        """weights (n,) or (k, n) times the rows at these places."""
        used, device = np.unique(places), self._device
        with device.working():
            width = self._width(len(used))
            if self._kept is None and width >= self._rows.shape[1]:
                self._kept = used, device.put(self._rows[used])
            if self._kept is not None and np.isin(used, self._kept[0]).all():
                kept, rows = self._kept
                return np.asarray(device.fetch(device.put(_spread(weights, places, kept)) @ rows))
            found = np.empty((*weights.shape[:-1], self._rows.shape[1]), np.float32)
            there = device.put(_spread(weights, places, used))
            for start in range(0, self._rows.shape[1], width):
                part = device.put(self._rows[used, start : start + width])
                found[..., start : start + width] = device.fetch(there @ part)
            return found

    def _width(self, rows: int) -> int:
        """Columns of so many rows that the budget holds."""
        free, size = self._device.free_bytes, self._rows.itemsize * max(rows, 1)
        budget = self._budget if self._budget is not None else None if free is None else free // 2
        columns = int(self._rows.shape[1])
        return columns if budget is None else max(1, min(columns, budget // size))


def _spread(weights: NDArray[np.float32], places: NDArray[np.intp], over: NDArray[np.intp]) -> NDArray[np.float32]:
    """The weights as those of other rows, in rising order, that hold all of these; 0 for the rest."""
    spread = np.zeros((len(over), *weights.shape[:-1]), np.float32)
    np.add.at(spread, np.searchsorted(over, places), weights.T)
    return np.ascontiguousarray(spread.T)


def find_devices(asked: str | Sequence[str], precision: Precision = "32") -> tuple[Device, ...]:
    """The devices that `run.device` names, once it is sure that they are there; `auto` takes all of the best kind.

    >>> find_devices("cpu")
    (Device(name='cpu', precision='32'),)
    """
    there = known_devices()
    best = {name.partition(":")[0]: None for name in there if name != "cpu"}
    names = [asked] if isinstance(asked, str) else list(asked)
    if names == ["auto"]:
        kind = next(iter(best), "cpu")
        names = [name for name in there if name.partition(":")[0] == kind]
    names = ["cuda:0" if name == "cuda" else name for name in names]
    missing = [name for name in names if name not in there]
    if missing:
        raise ConfigError(
            f"run.device names devices of this machine, and {missing[0]!r} is none; torch {torch.__version__} knows "
            f"of {', '.join(there)}"
        )
    return tuple(Device(name, precision) for name in names)


def known_devices() -> list[str]:
    """The accelerators that torch can use here, then the CPU."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def _single(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in outputs.items()
    }
