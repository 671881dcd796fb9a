"""Source of a task's data: files below the folder FEDMERIT_DATA, read with libraries of the `data` extra."""

import importlib
import os
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import DAMAGED, MOST_BYTES, check_file, read_file, unpacked
from fedmerit.core.showing import printable
from fedmerit.errors import DataError

VARIABLE = "FEDMERIT_DATA"
GZIP = b"\x1f\x8b"
UNREADABLE = (
    *DAMAGED,
    *(ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, MemoryError, tokenize.TokenError),
)
"""Exceptions of zipfile and numpy for a damaged archive or array header."""


def find_file(task: str, *names: str) -> Path:
    """Return the first of these files that exists in the task's folder."""
    wanted = f"{task}/{names[0]}"
    if not os.environ.get(VARIABLE):
        raise DataError(f"task {task!r} needs {wanted} below {VARIABLE}, which is not set; {_way_out(wanted)}")
    path = optional_file(task, *names)
    if path is None:
        raise DataError(
            f"task {task!r} needs the file {Path(os.environ[VARIABLE]) / wanted}, which does not exist; "
            f"{_way_out(wanted)}"
        )
    return path


def optional_file(task: str, *names: str) -> Path | None:
    """Return the first of these files that exists in the task's folder, or None."""
    paths = (Path(os.environ[VARIABLE]) / task / name for name in names)
    return next((path for path in paths if path.is_file()), None)


def _way_out(wanted: str) -> str:
    return f"set {VARIABLE} to a folder that contains {wanted}"


def read_bytes(path: Path) -> bytes:
    """Read a file, and unpack it if it is gzipped."""
    try:
        data = read_file(path)
        return unpacked(data, path) if data.startswith(GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read or is truncated ({error}); download the file again") from None


def read_npz(path: Path, names: Sequence[str], kinds: str = "iubU", others: bool = False) -> dict[str, NDArray[Any]]:
    """Read named arrays of an npz file, integers or text; nothing is unpickled.

    `kinds` are numpy's letters for the accepted types: with `f`, any numbers. With `others`, all arrays of the file are
    read, and the named ones must be among them.
    """
    try:
        # Opened here, because np.load leaves a file open that is not an npz file.
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            sizes = {part.filename.removesuffix(".npy"): part.file_size for part in archive.infolist()}
        size = sum(size for name, size in sizes.items() if others or name in names)
        if size > MOST_BYTES:
            raise DataError(
                f"{path} unpacks to {size:,} bytes, more than the limit of {MOST_BYTES:,}; use a smaller file"
            )
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = sorted(set(names) - set(file.files))
            if missing:
                raise DataError(f"{path} must contain the arrays {', '.join(names)} (missing: {', '.join(missing)})")
            arrays = {name: file[name] for name in (file.files if others else names)}
    except UNREADABLE as error:
        raise DataError(
            f"{path} is not a readable npz file ({printable(str(error), 200)}); download it again"
        ) from None
    what = "numbers" if "f" in kinds else "whole numbers or text"
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in kinds:
            raise DataError(f"{path}: {name} must be an array of {what}; got {array.ndim}-d {array.dtype}")
    return arrays


def need(module: str) -> Any:
    """Import a module of the `data` extra on first use; a DataError says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise missing(module.partition(".")[0], error) from None


def missing(library: str, error: object) -> DataError:
    """Error for a missing library of the `data` extra."""
    return DataError(
        f"loading data needs {library}, which cannot be imported ({error}); install the extra `data` (docs/install.md)"
    )
