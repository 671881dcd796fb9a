"""What this machine is, and what it can do at most: matrix product and reading memory, with one and two threads."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import torch

from peers.common import answer

SIDE = 2048
BYTES = 1 << 30
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"}
"""With these variables oneDNN, torch and numpy's BLAS work on an AVX-512 machine as on one that has AVX2 alone."""
STREAMS = 64  # rows read side by side: memory is read faster in several streams than in one


def facts() -> dict[str, str]:
    """For the head of the report."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "CPU": f"{cpu}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory / 2**20:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("fedmerit", "torch", "numpy")),
    }


def has_avx512() -> bool:
    """Whether this machine can play both instruction sets."""
    return any("avx512f" in line.split() for line in _lines("/proc/cpuinfo") if line.startswith("flags"))


def commit() -> str:
    """The commit that is measured, with a sign where files differ from it."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown commit"


def others_busy(seconds: float = 3.0) -> float:
    """The share of the cores that is in use while the bench itself does nothing."""

    def ticks() -> tuple[int, int]:
        counts = [int(count) for count in _lines("/proc/stat")[0].split()[1:9]]
        return sum(counts), counts[3] + counts[4]  # all; idle and waiting for a disk

    before, idle_before = ticks()
    sleep(seconds)
    after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / max(after - before, 1)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def readers(values: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Ways to read an array once with as little arithmetic as possible; the fastest is the machine's bandwidth."""
    flat = values.view(-1)
    array, table = flat.numpy(), flat[: len(flat) // STREAMS * STREAMS].view(STREAMS, -1)
    ones = torch.ones(STREAMS)
    return {
        "sum": lambda: torch.sum(flat),
        "dot": lambda: np.dot(array, array),
        "torch vector @ matrix": lambda: ones @ table,
        "numpy vector @ matrix": lambda: ones.numpy() @ table.numpy(),
    }


def best(action: Callable[[], object], times: int) -> float:
    """The shortest of several times."""
    action()
    seconds = []
    for _ in range(times):
        start = perf_counter()
        action()
        seconds.append(perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Answer with the limits for the threads that the environment allows; `quick` for a short look."""
    quick = "quick" in sys.argv
    times, size = (3, BYTES // 8) if quick else (10, BYTES)
    square, values = torch.randn(SIDE, SIDE), torch.ones(size // 4)
    gflops = 2 * SIDE**3 / best(lambda: square @ square, times) / 1e9
    isa = torch.backends.cpu.get_cpu_capability()
    answer(
        {"isa": isa, "gflops": gflops, "read": max(size / best(read, times) for read in readers(values).values()) / 1e9}
    )


if __name__ == "__main__":
    main()
