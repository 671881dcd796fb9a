"""Devices: every line that touches one: what goes there, what comes back, and which there are.

Nothing here was run on an accelerator: docs/devices.md says what was tested, and how.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmerit.errors import ConfigError

CPU = "cpu"
CACHE_ROWS = 100  # rows per pass on a CPU: fits the cache; mnist-cnn on 600 rows made 68 GFLOP/s so, 57 in one piece
DEVICE_ROWS = 4096  # on an accelerator, which wants many


def put(array: NDArray[Any], device: str) -> Tensor:
    """The array on the device; on the CPU the same memory."""
    return torch.from_numpy(array).to(device)


def fetch(tensor: Tensor) -> NDArray[Any]:
    """The tensor as an array; from the CPU the same memory."""
    return tensor.cpu().numpy()


def part_rows(device: str) -> int:
    """Rows that go through a model at once."""
    return CACHE_ROWS if device == CPU else DEVICE_ROWS


def describe(device: str) -> str:
    """Kind and make, as a run's ledger names what the bits depend on; which of several equals does not count.

    >>> describe("cpu")
    'cpu'
    """
    kind = device.partition(":")[0]
    return f"{kind} ({torch.cuda.get_device_name(device)})" if kind == "cuda" else kind


def find_device(asked: str) -> str:
    """The device that `run.device` names, once it is sure that it is there; `auto` takes the first accelerator.

    >>> find_device("cpu")
    'cpu'
    """
    known = known_devices()
    name = {"auto": known[0], "cuda": "cuda:0"}.get(asked, asked)
    if name not in known:
        raise ConfigError(
            f"run.device names a device of this machine, and {name!r} is none; torch {torch.__version__} knows of "
            f"{', '.join(known)}"
        )
    return name


def known_devices() -> list[str]:
    """The accelerators that torch can use here, then the CPU."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), CPU]
