"""Model files: models and checkpoints, written atomically and checked when read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmerit.core.learner import NamedTensors
from fedmerit.core.state import State
from fedmerit.core.types import Model
from fedmerit.errors import FolderError

FOLDER = "checkpoints"
MODEL = "model"
SEAL, UNSEALED = "seal", "0" * 64
LONGEST_HEADER = 1 << 24
VERSION = 1
"""Of the format of checkpoints."""
OWN = "own"
NOT_SEALED, DAMAGED = "it is not sealed, or of an older format", "it is damaged"
Sealed: TypeAlias = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""The tensors of a file, and their metadata."""
KEPT = 2  # the newest and the one before, in case the newest is damaged


def write_model(path: Path, model: Model, index: int, named: NamedTensors | None = None) -> None:
    """Write the model and its round, atomically and synced: one tensor `model`, or the tensors that the learner names.

    Named tensors are what the model's own library loads.
    """
    if named is None:
        write_sealed(path, {MODEL: model}, {"round": index})
    else:
        write_sealed(path, named.tensors, {"round": index, "vector": named.vector, "beside": named.beside})


def write_sealed(path: Path, tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Serialise tensors and metadata with a SHA-256 over the whole file, computed with zeros in its own place.

    So the seal covers names, types, shapes, round, settings and numbers. Atomic, and on the disk when this returns.
    """
    ordered = {name: np.ascontiguousarray(tensors[name]).reshape(tensors[name].shape) for name in sorted(tensors)}
    # one key: safetensors writes several in no fixed order, and equal models shall be equal files
    content = save(ordered, metadata={"fedmerit": json.dumps({**about, SEAL: UNSEALED})})
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content.replace(UNSEALED.encode(), sha256(content).hexdigest().encode(), 1))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # makes the rename last
    finally:
        os.close(folder)


def read_model(path: Path) -> tuple[Model, int] | None:
    """Read the model as one row, and its round; None if the file is missing, truncated or altered."""
    file = _read(path)
    if file is None:
        return None
    tensors, about = file
    if "vector" not in about:
        return tensors[MODEL], int(about["round"])
    row = np.concatenate([tensors[name].ravel() for name in about["vector"]]) if about["vector"] else np.empty(0)
    return row.astype(np.float32, copy=False), int(about["round"])


def read_tensors(path: Path) -> dict[str, NDArray[Any]] | None:
    """Read the model's tensors by name; None if the file is damaged, or was written without names."""
    found = _read(path)
    if found is None or "vector" not in found[1]:
        return None
    tensors, about = found
    return {name: values for name, values in tensors.items() if name not in about["beside"]}


def _read(path: Path) -> Sealed | None:
    """Read tensors and metadata; None if the file is missing, truncated or altered."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["fedmerit"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        int(about["round"])
        expected = set(about.get("vector", [MODEL]))
        return (tensors, about) if about[SEAL] == _seal(path, about[SEAL]) and expected <= tensors.keys() else None
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


def write_checkpoint(run: Path, state: State, identity: str = "") -> None:
    """Write the state after a round of the run with this identity, without its history, which is in the ledger.

    Arrays are tensors under the "/"-joined path in `State.own`, in their own type; other leaves are JSON in the header,
    floats as `float.hex()`. Checkpoints older than the last before this one are removed.
    """
    index = state.history.rounds
    (run / FOLDER).mkdir(exist_ok=True)
    tensors, leaves = {MODEL: state.model}, dict[str, Any]()
    for name, leaf in _leaves(state.own):
        if isinstance(leaf, np.ndarray):
            tensors[f"{OWN}/{name}"] = leaf
        else:  # floats as hexadecimal text, so that they come back to the bit
            leaves[name] = {"float": float(leaf).hex()} if isinstance(leaf, float | np.floating) else leaf
    about = {"version": VERSION, "round": index, "run": identity, "own": leaves}
    write_sealed(run / FOLDER / f"{index:08d}.safetensors", tensors, about)
    for path in _paths(run)[KEPT:]:
        path.unlink()


def read_checkpoint(run: Path, upto: int, identity: str = "") -> tuple[Model, dict[str, Any], int] | None:
    """Read the newest intact checkpoint of this run up to this round: model, states and round.

    A checkpoint that is not sealed, or of another format, is refused: nothing says what is in it.
    """
    for path in _paths(run):
        if not path.stem.isdecimal() or int(path.stem) > upto:
            continue
        file = _read(path)
        fault = checkpoint_fault(path, file, identity)
        if fault == NOT_SEALED:
            raise FolderError(f"cannot resume from {path}: {fault}; start a new run")
        if fault or file is None:
            continue
        tensors, about = file
        own: dict[str, Any] = {}
        leaves = {
            name: float.fromhex(value["float"]) if isinstance(value, dict) else value
            for name, value in about["own"].items()
        }
        arrays = {name.removeprefix(f"{OWN}/"): value for name, value in tensors.items() if name != MODEL}
        for name, value in sorted({**leaves, **arrays}.items()):
            *folders, last = name.split("/")
            table = own
            for folder in folders:
                table = table.setdefault(folder, {})
            table[last] = value
        return tensors[MODEL], own, int(about["round"])
    return None


def _leaves(own: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of nested mappings, by its path."""
    for key, value in own.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}/")
        else:
            yield before + key, value


def checkpoint_fault(path: Path, file: Sealed | None, identity: str) -> str:
    """The reason why a file is not the checkpoint of this run that its name promises; empty if it is."""
    try:
        with safe_open(path, framework="numpy") as header:
            about = json.loads((header.metadata() or {}).get("fedmerit", "{}"))
    except (OSError, SafetensorError, ValueError):
        return DAMAGED
    if not isinstance(about, dict) or SEAL not in about or about.get("version") != VERSION:
        return NOT_SEALED
    if file is None:
        return DAMAGED
    if path.stem != f"{int(about['round']):08d}":
        return f"it is of round {about['round']}"
    return "" if about.get("run") == identity else "it is of a run with other settings"


def damaged_models(run: Path, identity: str) -> dict[str, str]:
    """Damaged model files of a run's folder, with the reason."""
    faults: dict[str, str] = {}
    for path in sorted(run.rglob("*.safetensors")):
        file = _read(path)
        if path.parent == run / FOLDER:
            fault = checkpoint_fault(path, file, identity)
        else:
            fault = DAMAGED if file is None else ""
        faults |= {path.relative_to(run).as_posix(): fault} if fault else {}
    return faults


def checkpoint_rounds(run: Path) -> list[int]:
    """The rounds that have a checkpoint, newest first."""
    return [int(path.stem) for path in _paths(run)]


def remove_checkpoints(run: Path) -> None:
    """Delete the checkpoints of a finished run, which has its final model."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def _paths(run: Path) -> list[Path]:
    """Newest first."""
    return sorted((run / FOLDER).glob("*.safetensors"), reverse=True)
