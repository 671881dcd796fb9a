"""Arrays from a wire: numpy's file format, read under limits; nothing is allocated for what a header claims.

numpy's own loader also takes archives, pickles and headers of any length, and fails in as many ways. Here a file is a
magic number, a header of at most `MOST_HEADER` characters and exactly the bytes that its shape and type need.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedmerit.core.types import Model

MAGIC = b"\x93NUMPY"
MOST_HEADER, MOST_DIMENSIONS = 1024, 32
LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
"""Bytes that say how long the header is, by version of the format."""
TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
NUMPY = "numpy.ndarray"


class Unfit(Exception):
    """A record that is not what it should be; its text is the reason."""


def read_array(
    array: Array, name: str, *, shape: Sequence[int] | None = None, dtypes: Sequence[str] = TYPES
) -> NDArray[Any]:
    """A view, not to be written to, of the numbers in an array's bytes, of this shape and one of these types.

    >>> read_array(Array(np.arange(3.0)), "row", shape=[3]).tolist()
    [0.0, 1.0, 2.0]
    >>> read_array(Array(np.arange(3.0)), "row", shape=[4])
    Traceback (most recent call last):
    fedmerit.flower.arrays.Unfit: row has shape (3,), the model has (4,)
    """
    data = array.data
    if array.stype != NUMPY or not isinstance(data, bytes) or data[: len(MAGIC)] != MAGIC:
        raise Unfit(f"array {name!r} cannot be read: it is not an array of numpy")
    kind, sizes, by_columns, start = _header(data, name)
    if kind.str[1:] not in dtypes or not kind.isnative:
        raise Unfit(f"{name} has dtype {kind}, not {' or '.join(_spelt(one) for one in dtypes)}")
    if shape is not None and sizes != tuple(shape):
        raise Unfit(f"{name} has shape {sizes!r:.80}, the model has {tuple(shape)}")
    if math.prod(sizes) * kind.itemsize != len(data) - start:
        raise Unfit(f"array {name!r} cannot be read: {len(data) - start} bytes are not shape {sizes!r:.80} of {kind}")
    return np.frombuffer(data, kind, offset=start).reshape(sizes, order="F" if by_columns else "C")


def _header(data: bytes, name: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Type, shape, whether columns come first, and where the numbers begin."""
    width = LENGTHS.get((data[6], data[7])) if len(data) > 8 else None
    if width is None:
        raise Unfit(f"array {name!r} cannot be read: its format has no version that is known")
    begins = 8 + width
    length = int.from_bytes(data[8:begins], "little")
    if length > MOST_HEADER or begins + length > len(data):
        raise Unfit(f"array {name!r} cannot be read: a header of {length} characters")
    try:
        fields = ast.literal_eval(data[begins : begins + length].decode("ascii").strip())
        kind, by_columns, sizes = (fields.pop(key) for key in ("descr", "fortran_order", "shape"))
    except (ValueError, SyntaxError, TypeError, LookupError, AttributeError, MemoryError, RecursionError):
        raise Unfit(f"array {name!r} cannot be read: its header is no header") from None
    good = isinstance(kind, str) and len(kind) == 3 and kind[0] in "<>|=" and kind[1:] in TYPES
    if not good or fields or type(by_columns) is not bool:
        raise Unfit(f"array {name!r} cannot be read: numbers of type {kind!r:.80}")
    whole = isinstance(sizes, tuple) and all(type(size) is int and 0 <= size < 2**48 for size in sizes)
    if not whole or len(sizes) > MOST_DIMENSIONS:
        raise Unfit(f"array {name!r} cannot be read: its shape is {sizes!r:.80}")
    return np.dtype(kind), sizes, by_columns, begins + length


def _spelt(kind: str) -> str:
    """`float32` for "f4"."""
    return np.dtype(kind).name


def flat(arrays: ArrayRecord, like: ArrayRecord | None = None, out: Model | None = None) -> Model:
    """All arrays as one float32 row, a new one or `out`, in the order of `like`, whose names and shapes they have."""
    names = list(arrays) if like is None else list(like)
    if like is not None and set(arrays) != set(names):
        raise Unfit(f"arrays are {sorted(arrays)[:5]!r:.200}, the model has {sorted(names)[:5]}")
    parts: list[NDArray[Any]] = []
    for name in names:
        shape = None if like is None else like[name].shape
        parts.append(read_array(arrays[name], name, shape=shape).reshape(-1))
    out = np.empty(sum(len(part) for part in parts), np.float32) if out is None else out
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is infinite, and left out as such
        return np.concatenate([np.empty(0, np.float32), *parts], out=out, casting="unsafe")


def unflat(model: Model, like: ArrayRecord) -> ArrayRecord:
    """The row cut into arrays with the names, shapes and types of `like`."""
    arrays, start = {}, 0
    for name, array in like.items():
        size = int(np.prod(array.shape))
        part = model[start : start + size].reshape(array.shape)
        kind = np.dtype(array.dtype)
        whole = np.issubdtype(kind, np.integer)
        arrays[name] = Array(np.asarray(np.rint(part) if whole else part, dtype=kind))
        start += size
    return ArrayRecord(arrays)


def vector_bytes(arrays: ArrayRecord) -> int:
    """The bytes of a record's numbers as they travel, without headers.

    >>> vector_bytes(ArrayRecord({"weight": Array(np.zeros((2, 3), np.float32)), "steps": Array(np.array(7))}))
    32
    """
    return sum(read_array(array, name).nbytes for name, array in arrays.items())
