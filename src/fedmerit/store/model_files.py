"""Checkpoints: models written so that a kill leaves the old file or the new one, and checked when read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmerit.core.types import Model

FOLDER = "checkpoints"
KEPT = 2  # the newest and the one before, in case the newest is damaged


def write_model(path: Path, model: Model, round: int) -> None:
    """One tensor `model` with its round and SHA-256; atomic and on the disk when this returns."""
    values = np.ascontiguousarray(model)
    # one key: safetensors writes several in no fixed order, and equal models shall be equal files
    about = {"fedmerit": json.dumps({"round": round, "sha256": sha256(values.data).hexdigest()})}
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(save({"model": values}, metadata=about))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def read_model(path: Path) -> tuple[Model, int] | None:
    """The model and its round; None where the file is missing, truncated or altered."""
    try:
        with safe_open(path, framework="numpy") as file:
            about, model = json.loads(file.metadata()["fedmerit"]), file.get_tensor("model")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
    return (model, int(about["round"])) if about["sha256"] == sha256(model.data).hexdigest() else None


def write_checkpoint(run: Path, model: Model, round: int) -> None:
    """The state after a round; older ones but the last before are removed."""
    (run / FOLDER).mkdir(exist_ok=True)
    write_model(run / FOLDER / f"{round:08d}.safetensors", model, round)
    for path in list(_paths(run))[KEPT:]:
        path.unlink()


def read_checkpoint(run: Path, upto: int) -> tuple[Model, int] | None:
    """The newest intact checkpoint of a round up to this one."""
    found = (read_model(path) for path in _paths(run) if int(path.stem) <= upto)
    return next((checkpoint for checkpoint in found if checkpoint is not None), None)


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
