"""Rows that lie apart: their weighted sum, with the bits of a product of rows that lie side by side, and few copies.

BLAS adds rows up eight at a time: y + (the sum of eight rows times their weights), the next eight, and so on. So a sum
over rows with gaps may be made of products that each add to y, if each begins at a multiple of eight: eight rows with a
gap between them are copied first, all others stay where they are. numpy has no product that adds, but SciPy hands out
BLAS's own (`scipy.linalg.cython_blas`). Whether the BLAS of this machine adds in that order is tried once, for few rows
and for many and in blocks as wide as those of a product without gaps, since OpenBLAS has kernels of its own for small
blocks (AVX-512); where it does not, rows with gaps are copied as a whole.

CPU milliseconds of one weighting with one client left out (AMD EPYC, AVX2, a busy machine, least of 24, interleaved;
before: all rows copied, in another run), and the median of the ratios to nobody left out:

| rows x columns | nobody | one | ratio | before |
| --- | ---: | ---: | ---: | ---: |
| 100 x 1,000,000 | 21.6 | 27.3 | 1.22 | 1.97 |
| 37 x 3,300,000 (before: 6,600,000) | 29.8 | 35.3 | 1.25 | 1.78 |
| 60 x 500,000 | 8.8 | 11.3 | 1.25 | 1.68 |
| 10 x 1,660,000 | 8.4 | 11.4 | 1.19 | 1.34 |

Copies of 4,096 or 8,192 columns at a time are slower (1.3 to 2.1 times nobody left out).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

GROUP = 8
"""Rows that BLAS adds up before it adds them to the sum."""
COLUMNS = 1 << 14
"""Columns worked on at a time where rows lie side by side: 100 rows of them fit the cache."""
WIDE = 1 << 16
"""Columns worked on at a time where they lie apart: enough that the calls hardly count."""
TRIED = (GROUP + 1, 2 * GROUP - 1, 3 * GROUP + 5, 8 * GROUP)
"""Numbers of rows for which the order of BLAS is tried."""

Rows: TypeAlias = NDArray[np.float32]
Piece: TypeAlias = tuple[slice, tuple[slice, ...]]
"""Places among the weights, and the runs of rows that belong there; one run needs no copy."""
Add: TypeAlias = Callable[[Rows, Rows, Rows], None]
"""(rows, their weights, sum): adds to the sum."""


def pieces_of(places: NDArray[np.intp]) -> list[Piece]:
    """The places in pieces that begin at multiples of eight: long ones without a gap, eight rows where there is one.

    >>> [(which.start, which.stop, runs) for which, runs in pieces_of(np.r_[0:16, 17:40])]
    [(0, 16, (slice(0, 16, None),)), (16, 39, (slice(17, 40, None),))]
    >>> [(which.start, which.stop, runs) for which, runs in pieces_of(np.r_[0:3, 4:9])]
    [(0, 8, (slice(0, 3, None), slice(4, 9, None)))]
    """
    pieces: list[Piece] = []
    for start in range(0, len(places), GROUP):
        group = places[start : start + GROUP]
        parts = np.split(group, np.flatnonzero(np.diff(group) != 1) + 1)
        runs = tuple(slice(int(part[0]), int(part[-1]) + 1) for part in parts)
        before = pieces[-1][1] if pieces else ()
        if len(runs) == len(before) == 1 and before[0].stop == runs[0].start:
            first, runs = pieces.pop()[0].start, (slice(before[0].start, runs[0].stop),)
        else:
            first = start
        pieces.append((slice(first, start + len(group)), runs))
    return pieces


def add_up(add: Add, rows: Rows, pieces: list[Piece], weights: Rows, out: Rows, spare: list[Rows]) -> None:
    """Write the weighted sum of the pieces' rows to `out`; `spare` keeps buffers for copies between calls."""
    out[:] = 0
    buffer = spare.pop() if spare else np.empty((GROUP, WIDE), dtype=np.float32)
    for which, runs in pieces:
        block, copied = rows[runs[0]], 0
        if len(runs) > 1:
            block = buffer[: which.stop - which.start, : len(out)]
            for run in runs:
                copied, before = copied + run.stop - run.start, copied
                block[before:copied] = rows[run]
        add(block, weights[which], out)
    spare.append(buffer)


@cache
def find_add() -> Add | None:
    """BLAS's product that adds to a sum, if it adds in the order that the pieces count on; else None."""
    try:
        from scipy.linalg import cython_blas

        add = _from_capsule(cython_blas.__pyx_capi__["sgemv"])
    except (ImportError, AttributeError, KeyError):
        return None
    random = np.random.default_rng(0)
    rows = random.standard_normal((max(TRIED), WIDE), dtype=np.float32)
    weights = random.random(len(rows), dtype=np.float32)
    return add if all(_same_order(add, rows[:number], weights[:number]) for number in TRIED) else None


def _same_order(add: Add, rows: Rows, weights: Rows) -> bool:
    """Whether pieces of 8, 16 and all other rows add up to the bits of products of whole blocks."""
    out = np.empty(rows.shape[1], dtype=np.float32)
    ends = [*(end for end in (GROUP, 3 * GROUP) if end < len(rows)), len(rows)]
    pieces: list[Piece] = [(part, (part,)) for part in map(slice, [0, *ends], ends)]
    with threadpool_limits(1, "blas"):
        add_up(add, rows, pieces, weights, out, [])
        blocks = (rows[:, start : start + COLUMNS] for start in range(0, len(out), COLUMNS))
        return np.array_equal(out, np.concatenate([weights @ block for block in blocks]))


def _from_capsule(capsule: object) -> Add:
    """BLAS's sgemv as SciPy hands it to compiled code: y = a * A x + b * y, all by pointer, A column by column."""
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    sgemv = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(pointer(capsule, name(capsule)))
    one, step = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_int(1))

    def add(rows: Rows, weights: Rows, out: Rows) -> None:
        height, width, apart = (ctypes.byref(ctypes.c_int(n)) for n in (len(rows), len(out), rows.strides[0] // 4))
        at = rows.ctypes.data, weights.ctypes.data, out.ctypes.data
        sgemv(b"N", width, height, one, at[0], apart, at[1], step, one, at[2], step)

    return add
