"""Tables of any kind as plain columns: CSV and Parquet files, pandas and polars frames, Arrow tables.

Arrow parses and types the cells, narwhals reads any frame. Neither reads `<0.5` as a number or says what it guessed;
`tasks.suspicions` does.
"""

from __future__ import annotations

import csv as text_csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.reading import BLOCK, MOST_BYTES, check_file
from fedmerit.core.showing import printable
from fedmerit.errors import DataError
from fedmerit.tasks.source import need

if TYPE_CHECKING:
    from fedmerit.tasks.suspicions import Suspicion

NOTHING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", ".")
"""Words for a missing value in CSV files."""
MOST_CELLS = 500_000_000
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
PARQUET_FORM = "Parquet"
WIDE, NARROW = ("utf-16", "UTF-16"), ("cp1252", "Windows-1252")
"""Encodings other than UTF-8: Python's name, and the one that a reader knows."""
CSV, PARQUET = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz"), (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length: numbers as float64 with NaN if missing, words as text with None if missing.

    `others` are columns of other types: dates, lists, bytes. `form` is how the file is written, `twice` the columns
    with a name that occurs twice in the header. Of several files, `found` is how they differ, `files` describes each.
    """

    columns: Mapping[str, NDArray[Any]]
    others: Mapping[str, str]
    source: str
    form: str = ""
    twice: tuple[str, ...] = ()
    found: tuple[Suspicion, ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_table(path: Path) -> Table:
    """Read the table in a file, by its ending; a relative path starts at the current folder."""
    try:
        check_file(path)
        state = path.stat()
    except OSError as error:
        raise DataError(f"no table {path.absolute()} ({error.strerror}); paths start at the current folder") from None
    name = path.name.lower()
    if not name.endswith((*CSV, *PARQUET)):
        raise DataError(f"a table must end in {', '.join((*CSV, *PARQUET))} (got {path})")
    return _read(path.absolute(), state.st_mtime_ns)


def read_frame(frame: Any, source: str = "the frame") -> Table:
    """Read the columns of a pandas or polars frame, or of an Arrow table."""
    narwhals = need("narwhals.stable.v2")
    frame, twice = _named(frame)
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
            kind = wrapped[name].dtype
            other_types[str(name)] = "dates" if kind in (narwhals.Date, narwhals.Datetime) else str(kind)
        else:
            columns[str(name)] = values
    same = [name for name, first in twice.items() if _alike(columns.get(name), columns.get(first))]
    for name in same:  # a copy of a column tells nothing new
        del columns[name]
    return Table(columns, other_types, source, twice=tuple(name for name in twice if name not in same))


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Table:
    """Read a file once for a check and a run; `changed` distinguishes versions of the file."""
    frame, about = (_parquet(path), PARQUET_FORM) if path.name.lower().endswith(PARQUET) else _csv(path)
    table = replace(read_frame(frame, str(path)), form=about)
    if "decimal commas" in about:  # of numbers among words, which Arrow leaves as they are
        columns = {name: _with_points(values) for name, values in table.columns.items()}
        return replace(table, columns=columns)
    return table


def retyped(table: Table) -> Table:
    """The table with its words typed again, as if a CSV file had only these rows: words may leave numbers behind."""
    names = [name for name, values in table.columns.items() if values.dtype == object]
    if not names or table.form == PARQUET_FORM:
        return table
    csv, text = need("pyarrow.csv"), io.StringIO()
    lines = text_csv.writer(text)
    lines.writerow(f"column {place}" for place in range(len(names)))
    lines.writerows(zip(*(table.columns[name] for name in names), strict=True))
    frame = csv.read_csv(io.BytesIO(text.getvalue().encode()), convert_options=_convert_options())
    found = read_frame(frame, table.source)
    places = {f"column {place}": name for place, name in enumerate(names)}
    others = {places[key]: kind for key, kind in found.others.items()}
    again = {places[key]: values for key, values in found.columns.items()}
    columns = {name: again.get(name, values) for name, values in table.columns.items() if name not in others}
    return replace(table, columns=columns, others={**table.others, **others})


def _convert_options(point: str = ".", types: Any = None) -> Any:
    """How Arrow types the cells of a CSV file."""
    return need("pyarrow.csv").ConvertOptions(
        null_values=list(NOTHING),
        strings_can_be_null=True,
        decimal_point=point,
        include_missing_columns=False,
        column_types=types,
    )


def _with_points(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype == object:
        pattern = re.compile(r"([<>]?=?\s*[-+]?\d*),(\d+)")
        values[:] = [
            None if word is None else pattern.sub(r"\1.\2", word) if pattern.fullmatch(word) else word
            for word in values
        ]
    return values


def _named(frame: Any) -> tuple[Any, dict[str, str]]:
    """Give columns without a name one, and the second of two equal names a number; return these with the first name."""
    if not hasattr(frame, "rename_columns") or not hasattr(frame, "column_names"):  # Arrow: other frames have names
        return frame, {}
    names, twice, seen = list[str](), dict[str, str](), Counter[str]()
    for place, name in enumerate(frame.column_names, 1):
        word = name.strip().strip("\ufeff") or f"column {place}"
        seen[word] += 1
        names.append(word if seen[word] == 1 else f"{word} ({seen[word]})")
        if seen[word] > 1:
            twice[names[-1]] = word
    return frame.rename_columns(names), twice


def _alike(values: NDArray[Any] | None, first: NDArray[Any] | None) -> bool:
    if values is None or first is None or values.dtype != first.dtype:
        return values is first
    return bool(np.array_equal(values, first, equal_nan=values.dtype != object))


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


def _csv(path: Path) -> tuple[Any, str]:
    """Read a CSV file, and say how it is written where that is unusual."""
    csv, arrow = need("pyarrow.csv"), need("pyarrow")
    try:
        with arrow.input_stream(str(path)) as stream:
            start: bytes = stream.read(65536)
        _check_unpacked(path, arrow)
        encoding = _encoding(start)
        text = start.decode(encoding[0], errors="replace")
        skipped = re.match(r"(?:(?:[#%|].*|sep=.|[\s\ufeff]*)\r?\n)*", text)  # comments, and a spreadsheet's hint
        lines = skipped[0].count("\n") if skipped else 0
        header = text.splitlines()[lines] if text.strip() else ""
        delimiter = max(DELIMITERS, key=header.count)
        _check_header(path, header, delimiter)
        # If semicolons separate the values, commas may be decimal commas.
        point = "," if delimiter == ";" and re.search(r"\d,\d", text) else "."

        def read(encoding: str, types: Any = None) -> Any:
            return csv.read_csv(
                path,
                read_options=csv.ReadOptions(encoding=encoding, skip_rows=lines),
                parse_options=csv.ParseOptions(delimiter=delimiter),
                convert_options=_convert_options(point, types),
            )

        try:
            frame, why = read(encoding[0]), ""
        except arrow.ArrowInvalid as error:
            frame, why = None, str(error)
        if "UTF8" in why or (frame is not None and arrow.binary() in frame.schema.types):
            encoding = NARROW
            frame = read(encoding[0])
        elif frame is None:  # the first block decides the types: a later one may have words
            names = next(text_csv.reader([header], delimiter=delimiter))
            frame = read(encoding[0], dict.fromkeys(names, arrow.string()))
        marks = [DELIMITERS[delimiter], *([encoding[1]] if encoding[1] else []), *(["decimal commas"] * (point == ","))]
        return frame, ", ".join(marks)
    except (OSError, arrow.ArrowException, ValueError, MemoryError) as error:
        raise DataError(
            f"{path} is not a readable CSV file with a header ({_first_line(error)}); correct this line, or save the "
            "table again as CSV in UTF-8"
        ) from None


def _encoding(start: bytes) -> tuple[str, str]:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return WIDE
    try:
        start[:-4].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return NARROW
    return "utf-8", ""


def _check_header(path: Path, header: str, delimiter: str) -> None:
    """Refuse a file whose first line is a row: its values would become names."""
    cells = [cell.strip() for cell in header.split(delimiter)]
    if len(cells) > 1 and all(cell in NOTHING or re.fullmatch(r"[-+]?[\d.,]+", cell) for cell in cells):
        raise DataError(
            f"{path} must begin with a line of column names (got {printable(header, 60)}); add one, for example "
            "age,sex,died"
        )


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
