"""Where a task's data comes from: files below the folder FEDMERIT_DATA, a data set of the hub, or a library."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmerit.config.schema import TaskConfig
from fedmerit.errors import ConfigError, DataError, UnknownName

VARIABLE = "FEDMERIT_DATA"


def hub_name(config: TaskConfig, default: str, others: Sequence[str] = ()) -> str | None:
    """The hub's data set that `task.source` names; None where the source is a folder.

    `others` are further sources of the task: an error lists them, too.
    """
    word, colon, name = config.source.partition(":")
    if word == "folder" and not colon:
        return None
    if word != "hub":
        raise UnknownName("task.source", config.source, ("folder", "hub", "hub:NAME", *others))
    if colon and not name:
        raise ConfigError(f"task.source = 'hub:NAME' needs a data set or a local folder; got {config.source!r}")
    return name or default


def find_file(task: str, *names: str) -> Path:
    """The first of the names that exists in the task's folder."""
    wanted = f"{task}/{names[0]}"
    folder = task_folder(task, wanted)
    path = optional_file(task, *names)
    if path is None:
        raise DataError(f"task {task!r} found no file {folder / names[0]}; {ways_out(wanted)}")
    return path


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


def ways_out(wanted: str) -> str:
    """What to do where files are missing."""
    return f'set {VARIABLE} to a folder that holds {wanted}, or set task.source = "hub"'


def need(module: str) -> Any:
    """A module of the `data` extra, imported when first needed; a DataError says how to install it."""
    # flwr reports every loaded split to its makers unless told otherwise before it is imported.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise missing(module.partition(".")[0], error) from None


def missing(library: str, error: object) -> DataError:
    """The error for a library of the `data` extra that is not there."""
    return DataError(
        f"loading and spreading data needs {library}, which cannot be imported ({error}); "
        "way out: pip install 'fedmerit[data]'"
    )
