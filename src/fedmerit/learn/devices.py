"""Devices: all code that touches one: copies to and from it, and which devices exist.

Nothing here was run on an accelerator: docs/deploy.md lists what was tested.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmerit.errors import ConfigError

CPU = "cpu"
CACHE_ROWS = 100  # rows per pass on a CPU: fits the cache; mnist-cnn on 600 rows ran at 68 GFLOP/s, 57 in one piece
DEVICE_ROWS = 4096  # an accelerator needs many rows to be busy


def put(array: NDArray[Any], device: str) -> Tensor:
    """Copy the array to the device; on the CPU it shares memory."""
    return torch.from_numpy(array).to(device)


def fetch(tensor: Tensor) -> NDArray[Any]:
    """Copy the tensor to an array; on the CPU it shares memory."""
    return tensor.cpu().numpy()


def part_rows(device: str) -> int:
    """Rows per pass through a model."""
    return CACHE_ROWS if device == CPU else DEVICE_ROWS


def describe(device: str) -> str:
    """Kind and model of a device, as the ledger stores it; the number among equal devices does not count.

    >>> describe("cpu")
    'cpu'
    """
    kind = device.partition(":")[0]
    return f"{kind} ({torch.cuda.get_device_name(device)})" if kind == "cuda" else kind


def find_device(requested: str) -> str:
    """Return the device that `run.device` names if it exists; `auto` is the first accelerator.

    >>> find_device("cpu")
    'cpu'
    """
    available = known_devices()
    name = {"auto": available[0], "cuda": "cuda:0"}.get(requested, requested)
    if name not in available:
        raise ConfigError(
            f"run.device must be a device of this machine (got {name!r}); torch {torch.__version__} has "
            f"{', '.join(available)}"
        )
    return name


def known_devices() -> list[str]:
    """Return the accelerators that torch can use here, then the CPU."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), CPU]
