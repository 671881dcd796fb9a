"""LEAF's metrics: a CSV file with every client's local accuracy, as LEAF's own scripts and notebooks read it."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedmerit.errors import FolderError
from fedmerit.ledger import Ledger


class LeafMetric(NamedTuple):
    """A line of the file: one client's test in one round. The fields are LEAF's columns."""

    client_id: str
    round_number: int
    hierarchy: str
    num_samples: int
    set: str
    accuracy: float


def leaf_metrics(ledger: Ledger) -> Iterator[LeafMetric]:
    """A line per evaluated round and client that has test rows."""
    names = ledger.names()
    for round, client, correct, size in ledger.tested():
        if size:
            yield LeafMetric(names[client], round, "", size, "test", correct / size)


def write_leaf_metrics(ledger: Ledger, path: Path) -> None:
    """All lines as a new CSV file, which appears whole or not at all."""
    if path.exists() or path.is_symlink():
        raise FolderError(f"{path} exists; metrics go to a new file: choose another name, or remove it first")
    if not path.parent.is_dir():
        raise FolderError(f"no folder {path.parent} to write {path.name} to: make it first, or choose another name")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(LeafMetric._fields)
            lines.writerows(leaf_metrics(ledger))
        part.replace(path)
    except OSError as error:
        with suppress(OSError):  # a name that cannot be opened cannot be removed either
            part.unlink()
        raise FolderError(f"cannot write {path}: {error.strerror}; choose another name") from None
