"""Model files: models and checkpoints, written so that a kill leaves the old file or the new one, checked when read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmerit.core.learner import NamedTensors
from fedmerit.core.state import State
from fedmerit.core.types import NOTHING, Model

FOLDER = "checkpoints"
MODEL = "model"
SEAL, UNSEALED = "seal", "0" * 64
LONGEST_HEADER = 1 << 24
KEPT = 2  # the newest and the one before, in case the newest is damaged


def write_model(
    path: Path,
    model: Model,
    index: int,
    parts: Mapping[str, Model] = NOTHING,
    named: NamedTensors | None = None,
    run: str | None = None,
) -> None:
    """The tensor `model` and one for each named part, or the tensors that the learner names; the round, a SHA-256.

    Named tensors are what the model's own library loads. Atomic, and on the disk when this returns. With `run`, a hash
    of the settings that the model came of, the file is sealed: by a SHA-256 over all of it, the seal itself being
    zeros, so over names, types, shapes, round, settings and numbers.
    """
    tensors: dict[str, NDArray[Any]] = {MODEL: model, **{name: parts[name] for name in sorted(parts)}}
    about: dict[str, Any] = {"round": index}
    if named is not None:
        tensors = {name: named.tensors[name] for name in sorted(named.tensors)}
        about |= {"vector": named.vector, "beside": named.beside}
    tensors = {name: np.ascontiguousarray(values).reshape(values.shape) for name, values in tensors.items()}
    about |= {"sha256": _digest(tensors, named is not None)} if run is None else {"run": run, SEAL: UNSEALED}
    # one key: safetensors writes several in no fixed order, and equal models shall be equal files
    content = save(tensors, metadata={"fedmerit": json.dumps(about)})
    if run is not None:
        content = content.replace(UNSEALED.encode(), sha256(content).hexdigest().encode(), 1)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def read_model(path: Path) -> tuple[Model, int] | None:
    """The model as one row and its round; None where the file is missing, truncated or altered."""
    file = _read(path)
    if file is None:
        return None
    tensors, about = file
    if "vector" not in about:
        return tensors[MODEL], int(about["round"])
    row = np.concatenate([tensors[name].ravel() for name in about["vector"]]) if about["vector"] else np.empty(0)
    return row.astype(np.float32, copy=False), int(about["round"])


def read_tensors(path: Path) -> dict[str, NDArray[Any]] | None:
    """The model by the names of its library; None where the file is damaged, or was written without names."""
    found = _read(path)
    if found is None or "vector" not in found[1]:
        return None
    tensors, about = found
    return {name: values for name, values in tensors.items() if name not in about["beside"]}


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """The tensors and what the file says of them; the model's row comes first where it is one tensor."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["fedmerit"])
            named = "vector" in about
            names = sorted(file.keys(), key=lambda name: (name != MODEL and not named, name))
            tensors = {name: file.get_tensor(name) for name in names}
            int(about["round"])
            seal = about.get(SEAL)
            intact = about["sha256"] == _digest(tensors, named) if seal is None else seal == _seal(path, seal)
            return (tensors, about) if intact and (not named or set(about["vector"]) <= set(names)) else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _seal(path: Path, kept: str) -> str:
    """The SHA-256 of a file in which the seal that it keeps is zeros again."""
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if length > LONGEST_HEADER or len(kept) != len(UNSEALED):
            return ""
        digest = sha256(start + file.read(length).replace(kept.encode(), UNSEALED.encode(), 1))
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _digest(tensors: Mapping[str, NDArray[Any]], named: bool) -> str:
    """SHA-256 over names and bytes, in the order of the names; a row called `model` comes first, without its name."""
    digest = sha256()
    for name, values in tensors.items():
        if named or name != MODEL:
            digest.update(name.encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def write_checkpoint(run: Path, state: State, identity: str = "") -> None:
    """The model and parts after a round of the run with this identity; older ones but the last before are removed."""
    index = state.history.rounds
    (run / FOLDER).mkdir(exist_ok=True)
    write_model(run / FOLDER / f"{index:08d}.safetensors", state.model, index, state.parts, run=identity)
    for path in list(_paths(run))[KEPT:]:
        path.unlink()


def read_checkpoint(run: Path, upto: int, identity: str = "") -> tuple[Model, dict[str, Model], int] | None:
    """Model, parts and round of the newest intact checkpoint of a round up to this one, and of this run."""
    for path in _paths(run):
        file = _read(path) if path.stem.isdecimal() and int(path.stem) <= upto else None
        if file is not None and not wrong_checkpoint(path, file[1], identity):
            tensors, about = file
            return tensors.pop(MODEL), tensors, int(about["round"])
    return None


def wrong_checkpoint(path: Path, about: Mapping[str, Any], identity: str) -> str:
    """Why an intact file is not the checkpoint that its name promises; empty where it is."""
    if str(about["round"]) != str(int(path.stem)):
        return f"it is of round {about['round']}"
    return "" if about.get("run", identity) == identity else "it is of a run with other settings"


def damaged_models(run: Path, identity: str) -> dict[str, str]:
    """The model files of a run's folder that are not what was written, and why."""
    found: dict[str, str] = {}
    for path in sorted(run.rglob("*.safetensors")):
        file = _read(path)
        of_round = path.parent == run / FOLDER
        wrong = "it is damaged" if file is None else wrong_checkpoint(path, file[1], identity) if of_round else ""
        if wrong:
            found[path.relative_to(run).as_posix()] = wrong
    return found


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
