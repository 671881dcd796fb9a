"""Where data files are: below the folder that the environment variable FEDMERIT_DATA names."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.errors import DataError

VARIABLE = "FEDMERIT_DATA"


def find_file(task: str, *names: str) -> Path:
    """The first of the names that exists in the task's folder."""
    wanted = f"{task}/{names[0]}"
    folder = task_folder(task, wanted)
    found = optional_file(task, *names)
    if found is None:
        raise DataError(f"task {task!r} found no file {folder / names[0]}; {ways_out(wanted)}")
    return found


def task_folder(task: str, wanted: str) -> Path:
    """Where the task's files are, which may not be there; `wanted` says in an error what they are."""
    root = os.environ.get(VARIABLE, "")
    if not root:
        raise DataError(f"task {task!r} looks for {wanted} below {VARIABLE}, which is not set; {ways_out(wanted)}")
    return Path(root) / task


def optional_file(task: str, *names: str) -> Path | None:
    """The first of the names that exists in the task's folder, or None."""
    root = os.environ.get(VARIABLE, "")
    paths = [Path(root) / task / name for name in names] if root else []
    return next((path for path in paths if path.is_file()), None)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The named arrays of an npz file, whole numbers or text; nothing in it is ever unpickled."""
    arrays = _arrays(path, names)
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in "iubU":
            raise DataError(
                f"{path}: {name} must be an array of whole numbers or text; got {array.ndim}-d {array.dtype}"
            )
    return arrays


def _arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    try:
        # Opened here, because np.load leaves a file open that it finds to be no npz.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = sorted(set(names) - set(file.files))
            if missing:
                raise DataError(f"{path} must hold the arrays {', '.join(names)}; missing: {', '.join(missing)}")
            return {name: file[name] for name in names}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is no readable npz file ({error}); fetch it again") from None


def ways_out(wanted: str) -> str:
    """What to do where files are missing."""
    return f'set {VARIABLE} to a folder that holds {wanted}, or set task.source = "hub"'
