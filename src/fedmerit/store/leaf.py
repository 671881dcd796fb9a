"""LEAF's metrics: a CSV file with every client's local accuracy, as LEAF's own scripts and notebooks read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.ledger import Ledger


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
    for index, client, correct, size in ledger.evaluations():
        if size:
            yield LeafMetric(names[client], index, "", size, "test", correct / size)


def write_leaf_metrics(ledger: Ledger, path: Path, *, force: bool = False) -> None:
    """All lines as a new CSV file."""
    check_new_file(path, force=force)
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(LeafMetric._fields)
    lines.writerows(leaf_metrics(ledger))
    write_new_file(path, text.getvalue())
