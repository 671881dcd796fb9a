"""Testing on the local fleet: which rows go together in a job, and what they come to for each client."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmerit.fleet.blocks import Block
from fedmerit.fleet.worker import Rows

TEST_ROWS = 1000  # rows per testing job: the same cut for any number of workers, so that the bits are the same


def per_client(rows: Block, models: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums over each client's rows, for each model."""
    counts = np.zeros((models, offsets[-1] + 1), dtype=np.int64)
    np.cumsum(rows.array[:models, : offsets[-1]], axis=1, out=counts[:, 1:])
    return np.diff(counts[:, offsets], axis=1)


def testing_jobs(offsets: NDArray[np.int64], asked: NDArray[np.bool_] | None) -> list[tuple[Rows, ...]]:
    """Ranges of rows to be tested together: neighbours joined, long ones cut, short ones gathered up to TEST_ROWS.

    They depend on who is asked alone, never on the workers, so that the bits are the same.
    """
    edges = np.array([0, len(offsets) - 1])
    if asked is not None:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], asked, [False]]).astype(np.int8)))
    jobs: list[list[Rows]] = [[]]
    room = TEST_ROWS
    for start, stop in offsets[edges].reshape(-1, 2).tolist():
        while start < stop:
            end = min(start + room, stop)
            jobs[-1].append((start, end))
            room, start = room - (end - start), end
            if not room:
                jobs.append([])
                room = TEST_ROWS
    return [tuple(job) for job in jobs if job]
