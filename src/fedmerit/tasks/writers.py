"""Rows by writer, the writers stored file by file as LEAF does, and LEAF's way to draw some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.errors import DataError
from fedmerit.tasks.raw import Ids, Raw

Rows: TypeAlias = NDArray[np.int64]
PER_FILE = 100
"""Writers in a file of LEAF's."""


@dataclass(frozen=True, slots=True)
class Writers:
    """Images, labels and the writer of each row, as its place in `names`.

    `file` is the file of each writer; `for_test` marks the test rows where LEAF's split is known.
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    writer: NDArray[np.int64]
    names: tuple[str, ...]
    file: NDArray[np.int64]
    for_test: NDArray[np.bool_] | None = None

    def select(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Writers:
        """Some of the rows; writers keep their places."""
        for_test = None if self.for_test is None else self.for_test[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], writer=self.writer[rows], for_test=for_test)

    def raw(self, classes: int) -> Raw:
        """The rows for `build`."""
        return Raw(self.x, self.y, classes, ids=Ids("writer", self.writer, self.names), for_test=self.for_test)


def numbered_files(writers: int) -> NDArray[np.int64]:
    """The file of each writer, for data that is not in LEAF's files: a hundred each, in order."""
    return np.arange(writers, dtype=np.int64) // PER_FILE


def sample(data: Writers, share: float, seed: int) -> Writers:
    """Of each file, whole writers in random order until the share of its rows is reached; the last is cut (SPEC A6)."""
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
