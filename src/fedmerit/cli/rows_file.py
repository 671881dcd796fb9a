"""Rows to predict from a file: a table in CSV or Parquet, or the array `x` of an npz file."""

import shutil
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.errors import DataError, did_you_mean
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.source import read_npz


def read_rows(path: Path, drop: Collection[str] = ()) -> NDArray[Any]:
    """The rows of a file, columns in its order but for those to `drop`, such as an id or the label."""
    if path.suffix == ".npz":
        if drop:
            raise DataError("an npz file has no named columns to drop; it holds the rows as its array x")
        return read_npz(path, ["x"], kinds="biuf")["x"]
    table = read_raw_table(path)
    names = [*table.columns, *table.others]
    for name in drop:
        if name not in names:
            raise DataError(f"no column {name!r} to drop{did_you_mean(name, names)}; there are: {', '.join(names)}")
    kept = [name for name in names if name not in drop]
    if not kept:
        raise DataError(f"nothing is left of the columns {', '.join(names)}; drop fewer")
    for name in kept:
        if name in table.others or table.columns[name].dtype == object:
            kind = table.others.get(name, "text")
            raise DataError(f"{table.source}, column {name}: values are numbers; got {kind}; --drop {name}?")
    return np.column_stack([table.columns[name] for name in kept]).astype(np.float32)


def read_raw_table(path: Path) -> Table:
    """The columns of a file as they are, words and gaps included; - is CSV from the standard input."""
    if str(path) != "-":
        return read_table(path)
    with NamedTemporaryFile(suffix=".csv") as kept:  # the reader looks at the start of a file twice
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        return replace(read_table(Path(kept.name)), source="the standard input")
