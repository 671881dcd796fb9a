"""The npz files of numpy: named arrays of numbers or text, checked before use."""

from __future__ import annotations

import tokenize
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import DAMAGED, MOST_BYTES, check_file
from fedmerit.core.showing import printable
from fedmerit.errors import DataError

UNREADABLE = (
    *DAMAGED,
    *(ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, MemoryError, tokenize.TokenError),
)
"""What zipfile and numpy raise where an archive or the header of an array is damaged."""


def read_npz(path: Path, names: Sequence[str], kinds: str = "iubU", others: bool = False) -> dict[str, NDArray[Any]]:
    """The named arrays of an npz file, whole numbers or text; nothing in it is ever unpickled.

    `kinds` are numpy's letters for the types to accept: with `f`, numbers of any kind. With `others`, all arrays of
    the file are read, and the named ones must be among them.
    """
    what = "numbers" if "f" in kinds else "whole numbers or text"
    arrays = _arrays(path, names, others)
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in kinds:
            raise DataError(f"{path}: {name} must be an array of {what}; got {array.ndim}-d {array.dtype}")
    return arrays


def _arrays(path: Path, names: Sequence[str], others: bool) -> dict[str, NDArray[Any]]:
    try:
        # Opened here, because np.load leaves a file open that is not an npz file.
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            sizes = {part.filename.removesuffix(".npy"): part.file_size for part in archive.infolist()}
        size = sum(size for name, size in sizes.items() if others or name in names)
        if size > MOST_BYTES:
            raise DataError(f"{path} holds {size:,} bytes once it is unpacked; at most {MOST_BYTES:,} are read")
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = sorted(set(names) - set(file.files))
            if missing:
                raise DataError(f"{path} must hold the arrays {', '.join(names)}; missing: {', '.join(missing)}")
            return {name: file[name] for name in (file.files if others else names)}
    except UNREADABLE as error:
        raise DataError(f"{path} is not a readable npz file ({printable(str(error), 200)}); fetch it again") from None
