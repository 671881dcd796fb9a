"""LEAF's way to draw some of the writers, who are stored file by file."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.errors import DataError
from fedmerit.tasks.formats.leaf_json import Writers

Rows: TypeAlias = NDArray[np.int64]
PER_FILE = 100
"""Writers in a file of LEAF's."""


def numbered_files(writers: int) -> NDArray[np.int64]:
    """The file of each writer, for data that is not in LEAF's files: a hundred each, in order."""
    return np.arange(writers, dtype=np.int64) // PER_FILE


def sample_writers(data: Writers, share: float, seed: int) -> Writers:
    """Of each file, whole writers in random order until the share of its rows is reached; the last is cut."""
    if share == 1:
        return data
    files = data.file[data.writer]
    parts = [
        _of_file(data, np.flatnonzero(files == file), share, generator(seed, "sampled writers", int(file)))
        for file in np.unique(files)
    ]
    rows = np.sort(np.concatenate(parts))
    if len(rows) == 0:
        raise DataError(
            f"task.sample = {share:g} takes no row of any file: the largest of {len(parts)} has "
            f"{np.bincount(files).max()} rows; raise task.sample"
        )
    return data.select(rows)


def _of_file(data: Writers, rows: Rows, share: float, random: np.random.Generator) -> Rows:
    """The rows drawn from one file: the share of their number, rounded down as LEAF does."""
    missing = int(share * len(rows))
    writers = data.writer[rows]
    taken = [np.empty(0, dtype=np.int64)]
    for writer in random.permutation(np.unique(writers)):
        if missing == 0:
            break
        own = rows[writers == writer]
        taken.append(own if len(own) <= missing else _cut(own, data.for_test, missing, random))
        missing -= len(taken[-1])
    return np.concatenate(taken)


def _cut(rows: Rows, for_test: NDArray[np.bool_] | None, count: int, random: np.random.Generator) -> Rows:
    """Some of a writer's rows at random; one to train on is always among them."""
    order = random.permutation(rows)
    if for_test is not None:
        first = int(np.argmin(for_test[order]))  # the first that is not for testing
        order[[0, first]] = order[[first, 0]]
    return order[:count]
