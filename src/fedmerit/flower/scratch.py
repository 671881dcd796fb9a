"""Scratch folders of runs on Flower: held while they are used; those of runs that were killed go at the next start."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedmerit.errors import FolderError
from fedmerit.store.run_folder import held

PREFIX, LOCK = "fedmerit-", "in-use"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that only we may read, removed at the end; first those that nobody holds any more are removed."""
    remove_dead()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        (folder / LOCK).touch()
        with held(folder, LOCK):
            yield folder


def remove_dead() -> None:
    """Remove our own scratch folders whose process is gone; never through a link, never somebody else's."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError, FolderError):  # it is gone meanwhile, or in use
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / LOCK).is_file():
                continue
            with held(folder, LOCK):
                shutil.rmtree(folder, ignore_errors=True)
