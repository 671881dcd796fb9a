"""Where a task's data comes from: files below the folder FEDMERIT_DATA, read with libraries of the `data` extra."""

from __future__ import annotations

import importlib
import os
import warnings
import zlib
from pathlib import Path
from typing import Any

from fedmerit.config.reading import read_file, unpacked
from fedmerit.errors import DataError

VARIABLE = "FEDMERIT_DATA"
GZIP = b"\x1f\x8b"


def find_file(task: str, *names: str) -> Path:
    """The first of the names that exists in the task's folder."""
    wanted = f"{task}/{names[0]}"
    if not os.environ.get(VARIABLE):
        raise DataError(f"task {task!r} looks for {wanted} below {VARIABLE}, which is not set; {_way_out(wanted)}")
    path = optional_file(task, *names)
    if path is None:
        missing_file = Path(os.environ[VARIABLE]) / wanted
        raise DataError(f"task {task!r} found no file {missing_file}; {_way_out(wanted)}")
    return path


def optional_file(task: str, *names: str) -> Path | None:
    """The first of the names that exists in the task's folder, or None."""
    paths = (Path(os.environ[VARIABLE]) / task / name for name in names)
    return next((path for path in paths if path.is_file()), None)


def _way_out(wanted: str) -> str:
    return f"set {VARIABLE} to a folder that holds {wanted}"


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzipped."""
    try:
        data = read_file(path)
        return unpacked(data, path) if data.startswith(GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read or is cut off ({error}); fetch the file again") from None


def need(module: str) -> Any:
    """A module of the `data` extra, imported when first needed; a DataError says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise missing(module.partition(".")[0], error) from None


def missing(library: str, error: object) -> DataError:
    """The error for a library of the `data` extra that is not there."""
    return DataError(
        f"loading data needs {library}, which cannot be imported ({error}); way out: pip install 'fedmerit[data]'"
    )
