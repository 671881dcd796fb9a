"""Personal models: what clients keep between rounds, in shared rows during a run and in files for a resume."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from fedmerit.core.types import ClientId, Model
from fedmerit.fleet.blocks import Block
from fedmerit.store.model_files import FOLDER, MODEL, checkpoint_rounds, read_model, write_sealed


class PersonalStore:
    """One row per client of the federation; a client has a model from the first time that it kept one."""

    def __init__(self, rows: Block) -> None:
        self.rows = rows
        self._kept: dict[ClientId, int] = {}

    def __contains__(self, client: ClientId) -> bool:
        return client in self._kept

    def put(self, client: ClientId, model: Model, index: int) -> bool:
        """The client's model from now on, unless its training ran away: then the client stays with what it has."""
        if not np.isfinite(model).all():
            return False
        self.rows.array[client] = model
        self._kept[client] = index
        return True

    def release(self) -> None:
        """Rows on disk need not stay in memory."""
        if self.rows.on_disk:
            self.rows.release()

    def save(self, run: Path, index: int) -> None:
        """A file for each model kept in this round; files that no checkpoint goes back to are removed."""
        oldest = min(checkpoint_rounds(run), default=0)
        for client in (client for client, kept in self._kept.items() if kept == index):
            folder = _folder(run) / str(client)
            folder.mkdir(parents=True, exist_ok=True)
            write_sealed(folder / f"{index:08d}.safetensors", {MODEL: self.rows.array[client]}, {"round": index})
            for path in [path for path in _newest_first(folder) if int(path.stem) <= oldest][1:]:
                path.unlink()

    def load(self, run: Path, index: int) -> bool:
        """Every client's model as it was after a round; False, and nobody has one, where a file is damaged."""
        self._kept = {}
        for folder in _folder(run).glob("*"):
            path = next((path for path in _newest_first(folder) if int(path.stem) <= index), None)
            if path is None:
                continue
            saved = read_model(path)
            if saved is None or saved[0].shape != self.rows.array.shape[1:]:
                self._kept = {}
                return False
            self.rows.array[int(folder.name)], self._kept[int(folder.name)] = saved
        return True


def copy_out(run: Path, folder: Path) -> None:
    """Every client's newest model into a folder of its own, to stay when the checkpoints go."""
    folder.mkdir(exist_ok=True)
    for saved in _folder(run).iterdir():
        shutil.copyfile(_newest_first(saved)[0], folder / f"{saved.name}.safetensors")


def any_saved(run: Path) -> bool:
    """Whether the run's clients kept models."""
    return _folder(run).is_dir()


def saved_length(run: Path) -> int | None:
    """How long the models are that the run's clients kept; None where they kept none, 0 where all are damaged."""
    if not any_saved(run):
        return None
    found = (read_model(path) for path in sorted(_folder(run).glob("*/*.safetensors")))
    return next((len(model[0]) for model in found if model is not None), 0)


def _folder(run: Path) -> Path:
    return run / FOLDER / "personal"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"), reverse=True)
