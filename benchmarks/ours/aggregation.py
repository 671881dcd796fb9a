"""W4: n updates of d parameters brought together, against the speed at which this machine can read them.

Everything is timed in one process, in turn. Each operation has to read the whole matrix once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from machine import readers
from ours.timed import Timed

from fedmerit.core.updates import Updates

CANDIDATES = 6


def matrix(rows: int, length: int) -> np.ndarray:
    """Random updates, a few megabytes of them repeated: drawing gigabytes would take longer than all else."""
    few = np.random.default_rng(0).normal(0, 0.01, 1 << 20).astype(np.float32)
    made = np.empty((rows, length), dtype=np.float32)
    for row in made:
        for start in range(0, length, len(few)):
            row[start : start + len(few)] = few[: length - start]
    return made


def numpy_loop(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum as one writes it."""
    total = np.zeros(rows.shape[1], dtype=np.float32)
    for weight, row in zip(weights.astype(np.float32), rows, strict=True):
        total += weight * row
    return total


def torch_stack(rows: np.ndarray, weights: np.ndarray) -> torch.Tensor:
    """Stack, multiply, sum: the way of several frameworks."""
    stacked = torch.stack([torch.from_numpy(row) for row in rows])
    return (stacked * torch.from_numpy(weights.astype(np.float32))[:, None]).sum(0)


def operations(rows: np.ndarray) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    updates = Updates(rows)
    others = np.delete(np.arange(len(rows)), len(rows) // 3)
    one = np.full(len(rows), 1 / len(rows))
    six = np.random.default_rng(1).dirichlet(np.ones(len(rows)), CANDIDATES)
    as_torch = torch.from_numpy(rows)
    return {
        **{f"read: {name}": read for name, read in readers(as_torch).items()},
        "norms": lambda: Updates(rows).norms,  # asked anew: an object keeps what it found
        "combine, one weighting": lambda: updates.combine(one),
        "combine, one weighting, one client left out": lambda: updates.keep(others).combine(one[others]),
        "combine, six weightings": lambda: updates.combine(six),
        "numpy loop": lambda: numpy_loop(rows, one),
        "torch weights @ rows": lambda: torch.from_numpy(one.astype(np.float32)) @ as_torch,
        "torch stack, multiply, sum": lambda: torch_stack(rows, one),
    }


def main() -> None:
    """Time each operation `times` times, interleaved; one round before that is not counted."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = matrix(job["rows"], job["length"])
    named = operations(rows)
    timed = Timed(job["times"])
    timed.interleaved(named)
    timed.answer(bytes=rows.nbytes)


if __name__ == "__main__":
    main()
