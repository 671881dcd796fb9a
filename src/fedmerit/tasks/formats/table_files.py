"""Tables of any kind as plain columns: CSV and Parquet files, pandas and polars frames, Arrow tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import BLOCK, MOST_BYTES, check_file
from fedmerit.core.showing import printable
from fedmerit.errors import DataError
from fedmerit.tasks.source import need

NOTHING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none")
"""Words for a missing value in CSV files."""
MOST_CELLS = 500_000_000
CSV, PARQUET = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz"), (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length: numbers as float64 with NaN if missing, words as text with None if missing.

    `others` are columns of other types: dates, lists, bytes.
    """

    columns: Mapping[str, NDArray[Any]]
    others: Mapping[str, str]
    source: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_table(path: Path, form: Literal["csv", "parquet"] | None = None) -> Table:
    """Read the table in a file, by its ending or as `form`; a relative path starts at the current folder."""
    try:
        check_file(path)
        state = path.stat()
    except OSError as error:
        raise DataError(f"no table {path.absolute()} ({error.strerror}); paths start at the current folder") from None
    name = path.name.lower()
    chosen = form or ("parquet" if name.endswith(PARQUET) else "csv" if name.endswith(CSV) else None)
    if chosen is None:
        raise DataError(f"a table must end in {', '.join((*CSV, *PARQUET))} (got {path})")
    return _read(path.absolute(), chosen, state.st_mtime_ns)


def read_frame(frame: Any, source: str = "the frame") -> Table:
    """Read the columns of a pandas or polars frame, or of an Arrow table."""
    narwhals = need("narwhals.stable.v2")
    try:
        wrapped = narwhals.from_native(frame, eager_only=True)
        names = wrapped.columns
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"a table must be a pandas or polars frame, or an Arrow table (got {reason:.200})") from None
    if not len(wrapped):
        raise DataError(f"{source} has no rows; it needs at least one")
    columns: dict[str, NDArray[Any]] = {}
    other_types: dict[str, str] = {}
    for name in names:
        values = _values(wrapped[name], narwhals)
        if values is None:
            other_types[str(name)] = str(wrapped[name].dtype)
        else:
            columns[str(name)] = values
    return Table(columns, other_types, source)


@lru_cache(maxsize=2)
def _read(path: Path, form: str, changed: int) -> Table:
    """Read a file once for the model's size and its rows; `changed` distinguishes versions of the file."""
    return read_frame(_parquet(path) if form == "parquet" else _csv(path), str(path))


def _parquet(path: Path) -> Any:
    parquet, arrow = need("pyarrow.parquet"), need("pyarrow")
    try:
        about = parquet.read_metadata(path)
        if about.num_rows * about.num_columns > MOST_CELLS:
            raise DataError(
                f"{path} has {about.num_rows:,} rows, more than the limit of {MOST_CELLS:,} cells; use a part"
            )
        return parquet.read_table(path)
    except (OSError, arrow.ArrowException, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({_first_line(error)}); write it again") from None


def _csv(path: Path) -> Any:
    csv, arrow = need("pyarrow.csv"), need("pyarrow")
    try:
        with arrow.input_stream(str(path)) as stream:
            start = stream.read(65536).decode("utf-8", errors="replace")
        _check_unpacked(path, arrow)
        header = start.partition("\n")[0]
        delimiter = max(",;\t", key=header.count)
        # If semicolons separate the values, commas may be decimal commas.
        point = "," if delimiter == ";" and re.search(r"\d,\d", start) else "."
        return csv.read_csv(
            path,
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(
                null_values=list(NOTHING), strings_can_be_null=True, decimal_point=point, include_missing_columns=False
            ),
        )
    except (OSError, arrow.ArrowException, ValueError, MemoryError) as error:
        raise DataError(f"{path} is not a readable CSV file with a header ({_first_line(error)})") from None


def _check_unpacked(path: Path, arrow: Any) -> None:
    """Reject a gzipped file that unpacks to more than the limit."""
    if not path.name.lower().endswith(".gz"):
        return
    size = 0
    with arrow.input_stream(str(path)) as stream:
        while block := stream.read(BLOCK):
            size += len(block)
            if size > MOST_BYTES:
                raise DataError(f"{path} unpacks to more than the limit of {MOST_BYTES:,} bytes; use a smaller file")


def _values(series: Any, narwhals: Any) -> NDArray[Any] | None:
    """Numbers, words, or None for a column that is neither."""
    kind = series.dtype
    if kind.is_numeric() or kind == narwhals.Boolean:
        if not series.null_count():
            return np.asarray(series.to_numpy(), dtype=np.float64)
        return _numbers(series.to_list())
    if kind not in (narwhals.String, narwhals.Categorical, narwhals.Enum, narwhals.Object):
        return None if kind != narwhals.Unknown or series.null_count() < len(series) else _numbers(series.to_list())
    cells = [None if _is_missing(cell) else cell for cell in series.to_list()]
    present = [cell for cell in cells if cell is not None]
    if present and all(isinstance(cell, bool | int | float | np.number | np.bool_) for cell in present):
        return _numbers(cells)
    if not all(isinstance(cell, str) for cell in present):
        return None
    words = np.empty(len(cells), dtype=object)
    words[:] = [None if cell is None or cell.strip() in NOTHING else cell.strip() for cell in cells]
    return words


def _numbers(cells: list[Any]) -> NDArray[np.float64]:
    return np.array([math.nan if _is_missing(cell) else float(cell) for cell in cells], dtype=np.float64)


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ == "NAType"


def _first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0], 200)
