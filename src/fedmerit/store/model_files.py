"""Model files: models and checkpoints, written atomically and checked when read."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmerit.core.learner import NamedTensors
from fedmerit.core.state import State
from fedmerit.core.types import EMPTY, Model
from fedmerit.errors import FolderError

FOLDER = "checkpoints"
SUFFIX = ".safetensors"
MODEL = "model"
SEAL, UNSEALED = "seal", "0" * 64
LONGEST_HEADER = 1 << 24
VERSION = 1
"""Of the format of checkpoints."""
OWN = "own"
NOT_KEPT = "it is not the file that the ledger names"
NOT_SEALED, DAMAGED = "it is not sealed, or of an older format", "it is damaged"
Sealed: TypeAlias = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""The tensors of a file, and their metadata."""
KEPT = 2  # the newest and the one before, in case the newest is damaged


def write_model(path: Path, model: Model, index: int, named: NamedTensors | None = None) -> str:
    """Write the model and its round, atomically and synced: one tensor `model`, or the tensors that the learner names.

    Named tensors are what the model's own library loads; `base` is the hash of the base that they need, if any. Returns
    the file's seal.
    """
    content, seal = model_content(model, index, named)
    write_content(path, content)
    return seal


def model_content(model: Model, index: int, named: NamedTensors | None = None) -> tuple[bytes, str]:
    """What `write_model` writes, and its seal."""
    if named is None:
        return sealed({MODEL: model}, {"round": index})
    base = {"base": named.base} if named.base else {}
    return sealed(named.tensors, {"round": index, "vector": named.vector, "beside": named.beside} | base)


def sealed(tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> tuple[bytes, str]:
    """Serialise tensors and metadata with a seal: a SHA-256 over the whole file, computed with zeros in its own place.

    So the seal covers names, types, shapes, round, settings and numbers.
    """
    ordered = {name: np.ascontiguousarray(tensors[name]).reshape(tensors[name].shape) for name in sorted(tensors)}
    # one key: safetensors writes several in no fixed order, and equal models shall be equal files
    content = save(ordered, metadata={"fedmerit": json.dumps({**about, SEAL: UNSEALED})})
    seal = sha256(content).hexdigest()
    return content.replace(UNSEALED.encode(), seal.encode(), 1), seal


def write_sealed(path: Path, tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> str:
    """Write tensors and metadata with a seal, and return the seal."""
    content, seal = sealed(tensors, about)
    write_content(path, content)
    return seal


def write_content(path: Path, content: bytes) -> None:
    """Write a file atomically; it is on the disk when this returns."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # makes the rename last
    finally:
        os.close(folder)


def read_model(path: Path, seal: str | None = None) -> tuple[Model, int] | None:
    """Read the model as one row, and its round; None if the file is missing, truncated or altered.

    With `seal`, also None if the file has another seal.
    """
    file = _read(path)
    if file is None or seal not in (None, file[1][SEAL]):
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
    """Read tensors and metadata; None if the file is missing, truncated or altered, or a pipe, which would block."""
    if not path.is_file():
        return None
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


def write_checkpoint(run: Path, state: State, identity: str = "") -> dict[str, str]:
    """Write the state after a round of the run with this identity, without its history, which is in the ledger.

    Returns the file's name and seal, for the ledger.

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
    name = f"{FOLDER}/{index:08d}.safetensors"
    seal = write_sealed(run / name, tensors, about)
    for path in _paths(run)[KEPT:]:
        path.unlink()
    return {name: seal}


def read_checkpoint(
    run: Path, upto: int, identity: str = "", kept: Mapping[str, str] = EMPTY
) -> tuple[Model, dict[str, Any], int] | None:
    """Read the newest intact checkpoint of this run up to this round: model, states and round.

    `kept` are the seals in the ledger, by name of the file. A checkpoint that is not sealed, or of another format, is
    refused: nothing says what is in it.
    """
    for path in _paths(run):
        if not path.stem.isdecimal() or int(path.stem) > upto:
            continue
        if not path.is_file():
            raise FolderError(f"cannot resume from {path}: it is not a file; remove it")
        file = _read(path)
        fault = checkpoint_fault(path, file, identity, kept)
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


def checkpoint_fault(path: Path, file: Sealed | None, identity: str, kept: Mapping[str, str] = EMPTY) -> str:
    """The reason why a file is not the checkpoint of this run that its name promises; empty if it is."""
    if not path.is_file():
        return DAMAGED
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
    if about.get("run") != identity:
        return "it is of a run with other settings"
    return "" if kept.get(f"{FOLDER}/{path.name}", about[SEAL]) == about[SEAL] else NOT_KEPT


def damaged_models(run: Path, identity: str, kept: Mapping[str, str]) -> dict[str, str]:
    """Damaged model files of a run's folder, and those that are not the ones in the ledger, with the reason."""
    faults: dict[str, str] = {}
    for path in sorted(run.rglob("*.safetensors")):
        name, file = path.relative_to(run).as_posix(), _read(path)
        if path.parent == run / FOLDER:
            fault = checkpoint_fault(path, file, identity, kept)
        else:
            fault = DAMAGED if file is None else "" if kept.get(name, file[1][SEAL]) == file[1][SEAL] else NOT_KEPT
        faults |= {name: fault} if fault else {}
    return faults


def model_paths(run: Path) -> list[Path]:
    """The model files of a run that stay when its checkpoints are removed."""
    return [path for path in sorted(run.rglob("*.safetensors")) if FOLDER not in path.relative_to(run).parts]


def file_hashes(run: Path, names: Iterable[str]) -> dict[str, str]:
    """The hashes of files in a run's folder, for the ledger: the seal of a model, "" if it is damaged, else SHA-256."""
    hashes: dict[str, str] = {}
    for name in names:
        path = run / name
        if path.suffix == SUFFIX:
            file = _read(path)
            hashes[name] = str(file[1][SEAL]) if file else ""
        elif path.is_file():
            hashes[name] = sha256(path.read_bytes()).hexdigest()
    return hashes


def checkpoint_rounds(run: Path) -> list[int]:
    """The rounds that have a checkpoint, newest first."""
    return [int(path.stem) for path in _paths(run)]


def remove_checkpoints(run: Path) -> None:
    """Delete the checkpoints of a finished run, which has its final model."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def _paths(run: Path) -> list[Path]:
    """Newest first."""
    return sorted((run / FOLDER).glob("*.safetensors"), reverse=True)
