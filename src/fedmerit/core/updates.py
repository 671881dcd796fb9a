"""Updates: the changes that the clients of one round trained, one float32 row each, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedmerit.core.system import cores
from fedmerit.core.types import Matrix, Model, Vector

COLUMNS = 1 << 14  # columns per block: 100 rows of them fit the cache, so several weightings cost one read
WIDE = 1 << 16  # the same for one weighting: the total and a product fit the cache
NARROW = 64  # minimum columns per copy: with one to three columns BLAS adds up in a different order
SQUARED = 1 << 17  # values summed in single precision before the sum continues in double
SMALL_BYTES = 1 << 22  # below this size threads cost more than they save
RELEASE_BYTES = 1 << 28  # release the pages of a mapped file after reading this much, so that it does not fill memory

S = TypeVar("S")
T = TypeVar("T")


class Updates:
    """The (n, d) matrix of updates: trained model minus the model it started from.

    `rows` may contain more than this round's valid updates: `places` lists the rows that belong, in client order. Every
    sum runs in that order over the same blocks of columns, so the bits do not depend on the number of threads.
    `mixing` derives new rows, one block at a time when they are read: one factor per row, or with (m, n) factors m
    weighted sums of the n rows.
    """

    def __init__(
        self,
        rows: NDArray[np.float32],
        places: NDArray[np.intp] | None = None,
        release: Callable[[], None] | None = None,
        mixing: Vector | Matrix | None = None,
    ) -> None:
        self._rows, self._release, self._mixing = rows, release, mixing
        self._places = np.arange(len(rows)) if places is None else places
        self._whole = np.array_equal(self._places, np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self._places if self._mixing is None else self._mixing)

    @property
    def length(self) -> int:
        """d, the number of values in each update."""
        return int(self._rows.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the updates that `places` lists."""
        return len(self) * self.length * self._rows.itemsize

    def row(self, place: int) -> NDArray[np.float32]:
        """One client's update."""
        if self._mixing is not None:
            return self.combine(np.eye(len(self))[place])
        update: NDArray[np.float32] = self._rows[self._places[place]]
        return update

    def keep(self, places: NDArray[np.intp]) -> Updates:
        """Select the updates at these places, in that order; nothing is copied."""
        if self._mixing is not None:
            return self.mix(np.eye(len(self))[places])
        selected = Updates(self._rows, self._places[places], self._release)
        if "norms" in self.__dict__:
            selected.__dict__["norms"] = self.norms[places]
        if "products" in self.__dict__:
            selected.__dict__["products"] = self.products[np.ix_(places, places)]
        return selected

    def mix(self, factors: Vector | Matrix) -> Updates:
        """Multiply each row by a factor, or build m weighted sums with (m, n) factors; nothing is copied.

        >>> rows = Updates(np.array([[1, 0], [3, 4]], dtype=np.float32))
        >>> rows.mix(np.array([[0.5, 0.5]])).row(0).tolist(), rows.mix(np.array([1.0, 0.2])).norms.tolist()
        ([2.0, 2.0], [1.0, 1.0])
        """
        mixing = self._mixing
        if mixing is not None and mixing.ndim == 1:
            factors = factors * mixing
        elif mixing is not None:
            factors = (factors if factors.ndim == 2 else np.diag(factors)) @ mixing
        mixed = Updates(self._rows, self._places, self._release, factors)
        if mixing is None and factors.ndim == 1:
            mixed.__dict__["norms"] = np.abs(factors) * self.norms
        if mixing is None and "products" in self.__dict__:
            mixed.__dict__["products"] = _mixed(self.products, factors)
        return mixed

    def renewed(self) -> Updates:
        """Return the same rows without cached norms and products: call it after writing to the rows."""
        return Updates(self._rows, self._places, self._release, self._mixing)

    @cached_property
    def norms(self) -> Vector:
        """Euclidean norm of each row; infinite or NaN if a value is."""
        if self._mixing is not None:
            return np.asarray(np.sqrt(np.diag(self.products)))
        rows = [self._rows[place] for place in self._places]
        return np.sqrt(np.fromiter(self._each(square, rows), dtype=np.float64))

    def dots(self, vector: NDArray[np.float32]) -> Vector:
        """Inner product of each row with a vector; equal rows give equal bits."""
        # Row by row on purpose: a matrix product may sum two equal rows in different orders.
        each = self._each(lambda place: _dot(self.row(place), vector), range(len(self)))
        return np.fromiter(each, dtype=np.float64)

    def cosines(self) -> Matrix:
        """Cosine of every pair of updates; 0 if one of them is zero."""
        products = np.zeros((len(self), len(self)))
        for part in self._each(lambda columns: self._block(columns) @ self._block(columns).T, self._columns()):
            products += part
        return cosines_of(products)

    def cosine_distances(self) -> Matrix:
        """1 - cos of every pair of updates: 0 on the diagonal, 1 if one of them is zero.

        >>> Updates(np.array([[1, 0], [0, 2]], dtype=np.float32)).cosine_distances().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        return distances_of(self.cosines())

    @cached_property
    def products(self) -> Matrix:
        """Inner product of every pair of rows, in double precision: distances and norms derive from it."""
        products = np.zeros((len(self._places), len(self._places)))
        for part in self._each(lambda columns: _products(self._raw(columns)), self._columns()):
            products += part
        return products if self._mixing is None else _mixed(products, self._mixing)

    @property
    def squared_distances(self) -> Matrix:
        """||row_i - row_j||^2 of every pair; 0 on the diagonal."""
        squares = np.diag(self.products)
        # |a|^2 + |b|^2 - 2 a.b needs no second matrix of updates; rounding can make it slightly negative, hence max.
        apart = np.maximum(squares[:, np.newaxis] + squares - 2 * self.products, 0.0)
        np.fill_diagonal(apart, 0.0)
        return np.asarray(apart)

    def cosines_to(self, vector: Model) -> Vector:
        """Cosine of each row and a vector; 0 if one of them is zero."""
        exact = vector.astype(np.float64)
        along = sum(self._each(lambda columns: self._block(columns) @ exact[columns], self._columns()))
        scale = self.norms * np.linalg.norm(exact)
        return np.asarray(np.clip(np.divide(along, scale, out=np.zeros(len(self)), where=scale > 0), -1, 1))

    def distances(self, vector: Model) -> Vector:
        """||row - vector||_2 of each row."""

        def squares(columns: slice) -> Vector:
            apart = np.subtract(self._block(columns), vector[columns], dtype=np.float64)
            return np.asarray(np.einsum("ij,ij->i", apart, apart))

        return np.asarray(np.sqrt(sum(self._each(squares, self._columns()))))

    def combine(self, weights: Vector | Matrix) -> NDArray[np.float32]:
        """sum_i weights[i] * row[i]; with several weightings (k, n), all k sums in one pass over the rows.

        A sum of one weighting adds row after row with `add_row`, so that a server that receives one update at a time
        computes the same bits. Several weightings are one matrix product.
        """
        if self._mixing is not None:
            weights = weights * self._mixing if self._mixing.ndim == 1 else weights @ self._mixing
        if weights.ndim > 1:
            exact = weights.astype(np.float32)
            return self._fill(lambda columns, out: np.matmul(exact, self._raw(columns), out=out), (len(exact),))
        weighted = [(place, weight) for place, weight in zip(self._places, weights.tolist(), strict=True) if weight]

        def work(columns: slice, out: NDArray[np.float32]) -> None:
            out[:] = 0.0
            for place, weight in weighted:
                add_row(out, self._rows[place, columns], weight)

        return self._fill(work, (), WIDE)

    def by_columns(
        self, work: Callable[[NDArray[np.float32]], NDArray[Any]], shape: tuple[int, ...] = ()
    ) -> NDArray[np.float32]:
        """Apply work(block), which gives (*shape, c), to each block (n, c) of columns and concatenate the results."""
        return self._fill(lambda columns, out: np.copyto(out, work(self._block(columns)), "same_kind"), shape)

    def _fill(
        self, work: Callable[[slice, NDArray[np.float32]], object], shape: tuple[int, ...], width: int = COLUMNS
    ) -> NDArray[np.float32]:
        filled = np.empty((*shape, self.length), dtype=np.float32)
        for _ in self._each(lambda columns: work(columns, filled[..., columns]), self._columns(width)):
            pass
        return filled

    def _columns(self, width: int = COLUMNS) -> list[slice]:
        return [slice(start, min(start + width, self.length)) for start in range(0, self.length, width)]

    def _block(self, columns: slice) -> NDArray[np.float32]:
        raw = self._raw(columns)
        if self._mixing is None:
            return raw
        exact = self._mixing.astype(np.float32)
        return np.asarray(raw * exact[:, np.newaxis] if exact.ndim == 1 else exact @ raw)

    def _raw(self, columns: slice) -> NDArray[np.float32]:
        if self._whole:
            return self._rows[:, columns]
        copied = slice(max(min(columns.start, columns.stop - NARROW), 0), columns.stop)
        return self._rows[self._places, copied][:, columns.start - copied.start :]

    def _each(self, work: Callable[[S], T], parts: Sequence[S]) -> Iterator[T]:
        """Yield work(part) for each part, in order; on all cores if the rows are large."""
        if self.nbytes <= SMALL_BYTES:
            yield from map(work, parts)
            return
        step = self.nbytes // max(len(parts), 1)
        # BLAS gets one thread while our threads run: two nested pools would oversubscribe the cores.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(cores()) as threads:
            for number, result in enumerate(threads.map(work, parts)):
                yield result
                if self._release and number * step // RELEASE_BYTES != (number + 1) * step // RELEASE_BYTES:
                    self._release()


def add_row(total: NDArray[np.float32], row: NDArray[np.float32], weight: float) -> None:
    """Add weight * row to a total in place, `WIDE` values at a time so that the product stays in the cache.

    Each value is one product and one sum in single precision. Its bits do not depend on the instruction set, on BLAS
    or on the width, only on the order of the rows.

    >>> total = np.zeros(2, np.float32)
    >>> add_row(total, np.array([1.0, 2.0], np.float32), 0.5)
    >>> total.tolist()
    [0.5, 1.0]
    """
    factor = np.float32(weight)
    for start in range(0, len(total), WIDE):
        part = total[start : start + WIDE]
        part += row[start : start + WIDE] * factor


def cosines_of(products: Matrix) -> Matrix:
    """Cosine of every pair of rows from their inner products; 0 if one of them is zero.

    >>> cosines_of(np.array([[4.0, -2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    lengths = np.sqrt(np.maximum(np.diag(products), 0.0))
    scale = np.outer(lengths, lengths)
    return np.asarray(np.clip(np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0), -1, 1))


def distances_of(cosines: Matrix) -> Matrix:
    """1 - cos of every pair; 0 on the diagonal, although the cosine of a row of zeros is 0.

    >>> distances_of(np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    distances = np.asarray(1.0 - cosines)
    np.fill_diagonal(distances, 0.0)
    return distances


def _products(block: NDArray[np.float32]) -> Matrix:
    exact = block.astype(np.float64)
    return np.asarray(exact @ exact.T)


def _mixed(products: Matrix, factors: Vector | Matrix) -> Matrix:
    """Inner products of rows after mixing."""
    if factors.ndim == 1:
        return np.asarray(products * np.outer(factors, factors))
    return np.asarray(factors @ products @ factors.T)


def square(row: NDArray[np.float32]) -> float:
    """Sum of squares; infinite or NaN if a value is, or if the sum overflows."""
    return _dot(row, row)


def _dot(one: NDArray[np.float32], two: NDArray[np.float32]) -> float:
    """Inner product: single precision within a block, double over the blocks."""
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = (slice(start, start + SQUARED) for start in range(0, len(one), SQUARED))
        return float(sum(float(np.dot(one[block], two[block])) for block in blocks))


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Per client of a round, in client order: the norm of its update, and its agreement with the remaining clients.

    cosines_i = cos(u_i, sum over j != i of u_j / |u_j|): every client counts equally in that sum, whatever the norm of
    its update. NaN for an update of zeros, and if there is no other client.
    """

    norms: Vector
    cosines: Vector


def diagnose(updates: Updates) -> Diagnostics | None:
    """Measure norms and cosines in two passes: sums of directions, then inner products with them.

    None if the server has no single update, because clients reported facts first.

    >>> seen = diagnose(Updates(np.array([[2, 0], [1, 0], [-5, 0]], np.float32)))
    >>> seen.norms.tolist(), seen.cosines.tolist()
    ([2.0, 1.0, 5.0], [nan, nan, -1.0])
    """
    if not updates.length:
        return None
    norms = updates.norms
    nonzero = norms > 0
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=nonzero)
    directions = updates.combine(inverse)
    along = updates.dots(directions) * inverse
    along_rest = along - nonzero  # subtracts the client's product with itself, 1: no second pass without it is needed
    lengths = np.sqrt(np.maximum(float(np.dot(directions, directions)) - 2 * along + nonzero, 0.0))
    defined = nonzero & (lengths > 1e-6 * max(len(norms), 1))
    cosines = np.divide(along_rest, lengths, out=np.full_like(norms, np.nan), where=defined)
    return Diagnostics(norms, np.clip(cosines, -1, 1))
