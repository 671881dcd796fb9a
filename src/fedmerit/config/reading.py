"""Read users' files with size limits; refuse pipes, devices and archives that unpack without end."""

import gzip
import io
import stat
import zipfile
import zlib
from pathlib import Path

from fedmerit.errors import ConfigError, DataError, UserError

MOST_TEXT_BYTES = 1 << 26
"""Largest configuration, plan or hand-written table, in bytes."""
MOST_BYTES = 4 << 30
"""Largest data file, also after unpacking, in bytes."""
BLOCK = 1 << 20
DAMAGED = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Errors that zipfile raises for an archive that is damaged, encrypted or of an unknown format."""


def check_file(path: Path, most: int = MOST_BYTES, error: type[UserError] = DataError) -> None:
    """Refuse a path that is not an ordinary file of at most `most` bytes; OSError where it does not exist."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "a pipe, a device or a socket"
        raise error(f"{path} is {kind}; give an ordinary file")
    if state.st_size > most:
        raise error(f"{path} has {state.st_size:,} bytes, and at most {most:,} are read; split it")


def read_file(path: Path, most: int = MOST_BYTES, error: type[UserError] = DataError) -> bytes:
    """The bytes of an ordinary file of at most `most` bytes."""
    check_file(path, most, error)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:  # it grew since
        raise error(f"{path} has more than {most:,} bytes; split it")
    return content


def read_text(path: Path) -> str:
    """Read a small text file in UTF-8."""
    return read_file(path, MOST_TEXT_BYTES, ConfigError).decode("utf-8")


def unpacked(content: bytes, source: Path, most: int = MOST_BYTES) -> bytes:
    """Unpack gzip data of at most `most` bytes."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(f"{source} has more than {most:,} bytes once it is unpacked; split it")
    return data
