"""Files of users, read to their end under limits: a pipe, a device or an archive that never ends is refused at once."""

from __future__ import annotations

import gzip
import io
import stat
import zipfile
import zlib
from pathlib import Path

from fedmerit.errors import ConfigError, DataError, UserError

MOST_TEXT_BYTES = 1 << 26
"""Bytes of a configuration, a plan or a table that people write."""
MOST_BYTES = 4 << 30
"""Bytes of a file of data, also once it is unpacked."""
BLOCK = 1 << 20
DAMAGED = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What zipfile raises where an archive is damaged, locked, or packed in a way that it does not know."""


def check_file(path: Path, most: int = MOST_BYTES, error: type[UserError] = DataError) -> None:
    """Refuse what is no ordinary file, or larger than `most` bytes; OSError where it is not there."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "a pipe, a device or a socket"
        raise error(f"{path} is {kind}; give an ordinary file, or its content in one")
    if state.st_size > most:
        raise error(f"{path} has {state.st_size:,} bytes; of such a file at most {most:,} are read")


def read_file(path: Path, most: int = MOST_BYTES, error: type[UserError] = DataError) -> bytes:
    """The bytes of an ordinary file of at most `most` bytes."""
    check_file(path, most, error)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:  # it grew since
        raise error(f"{path} has more than {most:,} bytes")
    return content


def read_text(path: Path) -> str:
    """A text that people write, in UTF-8."""
    return read_file(path, MOST_TEXT_BYTES, ConfigError).decode("utf-8")


def unpacked(content: bytes, source: Path, most: int = MOST_BYTES) -> bytes:
    """What gzip packed, as long as it is not more than `most` bytes."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(f"{source} holds more than {most:,} bytes once it is unpacked; that is refused")
    return data
