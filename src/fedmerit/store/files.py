"""Atomic creation of new files, without overwriting existing ones."""

import os
from contextlib import suppress
from pathlib import Path

from fedmerit.errors import FolderError


def check_new_file(path: Path, other: str = "another name", *, force: bool = False) -> None:
    """Raise an error if the file exists or its folder does not; `other` is what the user can choose instead.

    With `force` a file may be written over, but nothing that is not a file.
    """
    if (path.exists() or path.is_symlink()) and not (force and path.is_file()):
        way_out = "" if force else ", or write over it with --force"
        raise FolderError(f"{path} exists; this writes a new file: choose {other}{way_out}")
    if not path.parent.is_dir():
        raise FolderError(f"no folder {path.parent} to write {path.name} to: make it first, or choose {other}")


def write_new_file(path: Path, content: str | bytes, other: str = "another name") -> None:
    """Write to a temporary file in the same folder, then rename it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # a name that cannot be opened cannot be removed either
            part.unlink()
        raise FolderError(f"cannot write {path}: {error.strerror}; choose {other}") from None
