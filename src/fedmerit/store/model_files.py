"""Model files: models and checkpoints, written so that a kill leaves the old file or the new one, checked when read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmerit.core.state import State
from fedmerit.core.types import NOTHING, Model

FOLDER = "checkpoints"
MODEL = "model"
KEPT = 2  # the newest and the one before, in case the newest is damaged


def write_model(path: Path, model: Model, index: int, parts: Mapping[str, Model] = NOTHING) -> None:
    """The tensor `model`, and one for each named part, with the round and a SHA-256 over them all.

    Atomic, and on the disk when this returns.
    """
    tensors = {
        MODEL: np.ascontiguousarray(model),
        **{name: np.ascontiguousarray(parts[name]) for name in sorted(parts)},
    }
    # one key: safetensors writes several in no fixed order, and equal models shall be equal files
    about = {"fedmerit": json.dumps({"round": index, "sha256": _digest(tensors)})}
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(save(tensors, metadata=about))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def read_model(path: Path) -> tuple[Model, int] | None:
    """The model and its round; None where the file is missing, truncated or altered."""
    file = _read(path)
    return None if file is None else (file[0][MODEL], file[1])


def _read(path: Path) -> tuple[dict[str, Model], int] | None:
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["fedmerit"])
            names = [MODEL, *sorted(name for name in file.keys() if name != MODEL)]  # noqa: SIM118 - not a mapping
            tensors = {name: file.get_tensor(name) for name in names}
            return (tensors, int(about["round"])) if about["sha256"] == _digest(tensors) else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _digest(tensors: Mapping[str, Model]) -> str:
    """SHA-256 over the model's bytes and, where there are parts, their names and bytes in the order of the names."""
    digest = sha256()
    for name, values in tensors.items():
        if name != MODEL:
            digest.update(name.encode())
        digest.update(values.data)
    return digest.hexdigest()


def write_checkpoint(run: Path, state: State) -> None:
    """The model and parts after a round; older ones but the last before are removed."""
    index = state.history.rounds
    (run / FOLDER).mkdir(exist_ok=True)
    write_model(run / FOLDER / f"{index:08d}.safetensors", state.model, index, state.parts)
    for path in list(_paths(run))[KEPT:]:
        path.unlink()


def read_checkpoint(run: Path, upto: int) -> tuple[Model, dict[str, Model], int] | None:
    """Model, parts and round of the newest intact checkpoint of a round up to this one."""
    for path in _paths(run):
        file = _read(path) if int(path.stem) <= upto else None
        if file is not None:
            tensors, index = file
            return tensors.pop(MODEL), tensors, index
    return None


def checkpoint_rounds(run: Path) -> list[int]:
    """The rounds of which there are checkpoints, newest first."""
    return [int(path.stem) for path in _paths(run)]


def remove_checkpoints(run: Path) -> None:
    """A finished run has its final model and needs none of them."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def _paths(run: Path) -> Iterator[Path]:
    """Newest first."""
    return iter(sorted((run / FOLDER).glob("*.safetensors"), reverse=True))


def _sync_folder(folder: Path) -> None:
    """Make a rename last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
