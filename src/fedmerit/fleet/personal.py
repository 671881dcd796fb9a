"""Storage of personal models: in shared rows during a run, and in files for a resume."""

import shutil
from pathlib import Path

import numpy as np

from fedmerit.core.types import ClientId, Model
from fedmerit.fleet.blocks import Block
from fedmerit.store.model_files import FOLDER, MODEL, checkpoint_rounds, read_model, write_sealed


class PersonalStore:
    """One row per client of the federation; a client has a model after its first `put`."""

    def __init__(self, rows: Block) -> None:
        self.rows = rows
        self._kept: dict[ClientId, int] = {}

    def __contains__(self, client: ClientId) -> bool:
        return client in self._kept

    def put(self, client: ClientId, model: Model, index: int) -> bool:
        """Store the client's model, unless it diverged: then the client keeps its previous one."""
        if not np.isfinite(model).all():
            return False
        self.rows.array[client] = model
        self._kept[client] = index
        return True

    def release(self) -> None:
        """Release rows on disk from memory."""
        if self.rows.on_disk:
            self.rows.release()

    def save(self, run: Path, index: int) -> None:
        """Write each model that was stored in this round; delete files that no checkpoint needs."""
        oldest = min(checkpoint_rounds(run), default=0)
        for client in (client for client, saved_in in self._kept.items() if saved_in == index):
            folder = _folder(run) / str(client)
            folder.mkdir(parents=True, exist_ok=True)
            write_sealed(folder / f"{index:08d}.safetensors", {MODEL: self.rows.array[client]}, {"round": index})
            for path in [path for path in _newest_first(folder) if int(path.stem) <= oldest][1:]:
                path.unlink()

    def load(self, run: Path, index: int) -> bool:
        """Restore every client's model after a round; False, and no client has one, if a file is damaged."""
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
    """Copy every client's newest model, if any, to a folder that stays when the checkpoints are deleted."""
    for saved in _folder(run).glob("*"):
        folder.mkdir(exist_ok=True)
        shutil.copyfile(_newest_first(saved)[0], folder / f"{saved.name}.safetensors")


def saved_length(run: Path) -> int | None:
    """Length of the stored models; None if there are none, 0 if all are damaged."""
    if not _folder(run).is_dir():
        return None
    models = (read_model(path) for path in sorted(_folder(run).glob("*/*.safetensors")))
    return next((len(model[0]) for model in models if model is not None), 0)


def _folder(run: Path) -> Path:
    return run / FOLDER / "personal"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"), reverse=True)
