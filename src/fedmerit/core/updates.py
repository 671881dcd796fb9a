"""Updates: what the clients of one round learned, one float32 row each, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedmerit.core.system import cores
from fedmerit.core.types import Matrix, Vector

COLUMNS = 1 << 14  # columns worked on at a time: 100 rows of them fit the cache, so several weightings cost one read
SQUARED = 1 << 17  # values squared and added in single precision before double takes over
SMALL_BYTES = 1 << 22  # up to which threads do not pay
RELEASE_BYTES = 1 << 28  # a mapped file is let go of after reading this much, so that it does not fill the memory

S = TypeVar("S")
T = TypeVar("T")


class Updates:
    """The (n, d) matrix of updates: trained model minus the model it started from.

    `rows` may hold more than this round's good updates: `places` says which rows belong, in client order. Every sum
    runs in that order over the same blocks of columns, so the bits depend neither on where the rows lie nor on threads.
    """

    def __init__(
        self,
        rows: NDArray[np.float32],
        places: NDArray[np.intp] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        self._rows, self._release = rows, release
        self._places = np.arange(len(rows)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def length(self) -> int:
        """d, the number of values in each update."""
        return int(self._rows.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the updates that belong."""
        return len(self) * self.length * self._rows.itemsize

    def row(self, place: int) -> NDArray[np.float32]:
        """One client's update."""
        update: NDArray[np.float32] = self._rows[self._places[place]]
        return update

    def keep(self, places: NDArray[np.intp]) -> Updates:
        """The updates at the given places, in that order; nothing is copied."""
        kept = Updates(self._rows, self._places[places], self._release)
        if "norms" in self.__dict__:
            kept.__dict__["norms"] = self.norms[places]
        return kept

    def renewed(self) -> Updates:
        """The same rows, with nothing remembered of what was in them: for who wrote to them."""
        return Updates(self._rows, self._places, self._release)

    @cached_property
    def norms(self) -> Vector:
        """Euclidean length of each row; infinite or NaN where a value is."""
        rows = [self._rows[place] for place in self._places]
        return np.sqrt(np.fromiter(self._each(_square, rows), dtype=np.float64))

    def dots(self, vector: NDArray[np.float32]) -> Vector:
        """The product of each row with a vector, row by row: equal rows give equal bits."""
        each = self._each(lambda place: _dot(self.row(place), vector), range(len(self)))
        return np.fromiter(each, dtype=np.float64)

    def cosines(self) -> Matrix:
        """The cosine of every pair of updates; 0 where one of them is zero."""
        products = np.zeros((len(self), len(self)))
        for part in self._each(lambda columns: self._block(columns) @ self._block(columns).T, self._columns()):
            products += part
        lengths = np.sqrt(np.diag(products))
        scale = np.outer(lengths, lengths)
        return np.asarray(np.clip(np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0), -1, 1))

    def combine(self, weights: Vector | Matrix) -> NDArray[np.float32]:
        """sum_i weights[i] * row[i]; with several weightings (k, n), all k sums in one pass over the rows."""
        exact = weights.astype(np.float32)
        sums = np.empty((*weights.shape[:-1], self.length), dtype=np.float32)

        def fill(columns: slice) -> None:
            np.matmul(exact, self._block(columns), out=sums[..., columns])

        for _ in self._each(fill, self._columns()):
            pass
        return sums

    def by_columns(self, work: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> NDArray[np.float32]:
        """One vector made block by block: `work` turns all rows of some columns (n, c) into c values."""
        made = np.empty(self.length, dtype=np.float32)

        def fill(columns: slice) -> None:
            made[columns] = work(self._block(columns))

        for _ in self._each(fill, self._columns()):
            pass
        return made

    def _columns(self) -> list[slice]:
        return [slice(start, start + COLUMNS) for start in range(0, self.length, COLUMNS)]

    def _block(self, columns: slice) -> NDArray[np.float32]:
        if np.array_equal(self._places, np.arange(len(self._rows))):
            return self._rows[:, columns]
        return self._rows[self._places, columns]

    def _each(self, work: Callable[[S], T], parts: Sequence[S]) -> Iterator[T]:
        """work(part) for each part, in order; on all cores where there is much to do."""
        if self.nbytes <= SMALL_BYTES:
            yield from map(work, parts)
            return
        step = self.nbytes // max(len(parts), 1)
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(cores()) as threads:
            for number, result in enumerate(threads.map(work, parts)):
                yield result
                if self._release and number * step // RELEASE_BYTES != (number + 1) * step // RELEASE_BYTES:
                    self._release()


def _square(row: NDArray[np.float32]) -> float:
    """The sum of squares."""
    return _dot(row, row)


def _dot(one: NDArray[np.float32], two: NDArray[np.float32]) -> float:
    """The sum of products: single precision within a block, double over the blocks."""
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = (slice(start, start + SQUARED) for start in range(0, len(one), SQUARED))
        return float(sum(float(np.dot(one[block], two[block])) for block in blocks))
