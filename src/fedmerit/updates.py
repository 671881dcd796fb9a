"""Updates: what the clients of one round learned, one float32 row each, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmerit.types import Matrix, Vector

COLUMNS = 1 << 14  # columns worked on at a time: 100 rows of them fit the cache, so several weightings cost one read
RELEASE_BYTES = 1 << 28  # a mapped file is let go of after reading this much, so that it does not fill the memory


class Updates:
    """The (n, d) matrix of updates: trained model minus the model it started from.

    `rows` may hold more than this round's good updates: `places` says which rows belong, in client order. Every sum
    runs in that order over the same blocks of columns, so the bits do not depend on where the rows lie.
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

    def keep(self, places: NDArray[np.intp]) -> Updates:
        """The updates at the given places, in that order; nothing is copied."""
        kept = Updates(self._rows, self._places[places], self._release)
        if "norms" in self.__dict__:
            kept.__dict__["norms"] = self.norms[places]
        return kept

    @cached_property
    def norms(self) -> Vector:
        """Euclidean length of each row; infinite or NaN where a value is."""
        squares = np.zeros(len(self))
        with np.errstate(over="ignore", invalid="ignore"):
            for place, row in enumerate(self._places):
                for start in range(0, self.length, COLUMNS):
                    part = self._rows[row, start : start + COLUMNS]
                    squares[place] += float(np.dot(part, part))
                self._let_go(place * self.length * self._rows.itemsize)
        return np.sqrt(squares)

    def cosines(self) -> Matrix:
        """The cosine of every pair of updates; 0 where one of them is zero."""
        products = np.zeros((len(self), len(self)))
        for _, block in self._blocks():
            products += block @ block.T
        lengths = np.sqrt(np.diag(products))
        scale = np.outer(lengths, lengths)
        return np.asarray(np.clip(np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0), -1, 1))

    def combine(self, weights: Vector | Matrix) -> NDArray[np.float32]:
        """sum_i weights[i] * row[i]; with several weightings (k, n), all k sums in one pass over the rows."""
        several = np.atleast_2d(weights).astype(np.float32)
        sums = np.empty((len(several), self.length), dtype=np.float32)
        for columns, block in self._blocks():
            for place, weighting in enumerate(several):
                np.dot(weighting, block, out=sums[place, columns])
        return sums if weights.ndim == 2 else sums[0]

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Blocks of columns, from left to right."""
        whole = np.array_equal(self._places, np.arange(len(self._rows)))
        for start in range(0, self.length, COLUMNS):
            columns = slice(start, start + COLUMNS)
            yield columns, self._rows[:, columns] if whole else self._rows[self._places, columns]
            self._let_go(start * len(self) * self._rows.itemsize)

    def _let_go(self, read: int) -> None:
        if self._release and read % RELEASE_BYTES < COLUMNS * len(self) * self._rows.itemsize:
            self._release()
