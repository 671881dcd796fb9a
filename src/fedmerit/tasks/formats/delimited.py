"""Delimited text from spreadsheets: commas, semicolons or tabs, decimal commas, percent signs; or an xlsx file.

Files are untrusted: the unpacked bytes and the number of cells are limited.
"""

import csv
import io
import math
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path

import numpy as np

from fedmerit.config.reading import MOST_TEXT_BYTES, read_file
from fedmerit.core.types import Vector
from fedmerit.errors import TableError

STDIN = Path("-")
CLIENT_HEADERS = ("client", "id", "name")
DELIMITERS = (";", "\t", ",")
"""In this order: if a semicolon separates cells, commas are decimal commas."""
MARK = b"PK\x03\x04"
"""First bytes of an xlsx file, which is a zip archive."""
MAX_PART_BYTES = 50_000_000
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384  # limits of a sheet in Excel
MAX_CELLS = 10_000_000


@dataclass(frozen=True, slots=True)
class DelimitedTable:
    """A header, and the cells of every line below it with the line number in the file."""

    source: str
    header: tuple[str, ...]
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]

    def texts(self, name: str) -> list[str]:
        """Return a column as text."""
        place = self.header.index(name)
        return [row[place].strip() for row in self.cells]

    def numbers(self, name: str) -> Vector:
        """Convert a column to numbers: `0.5`, `0,5`, `50 %` (= 0.5); other cells raise a TableError with the line.

        A comma is a decimal comma: thousands are written without a separator.
        """
        texts = self.texts(name)
        try:
            plain = np.array([float(text) for text in texts])
        except ValueError:
            return self._written_otherwise(name, texts)
        for place in np.flatnonzero(~np.isfinite(plain))[:1].tolist():
            raise self._wrong(self.lines[place], name, "values must be finite numbers", texts[place])
        return plain

    def _written_otherwise(self, name: str, texts: list[str]) -> Vector:
        """Convert a column with percent signs or decimal commas, or raise for cells that are not numbers."""
        percent = [text.endswith("%") for text in texts]
        if any(percent) and not all(percent):
            line = self.lines[percent.index(not percent[0])]
            raise self._wrong(line, name, "either all or no values must be percentages", texts[0])
        if any("," in text for text in texts) and any("." in text for text in texts):
            line = next(line for line, text in zip(self.lines, texts, strict=True) if "," in text)
            raise self._wrong(line, name, "a column must use decimal commas or decimal points, not both", "both")
        values = [_number(text) for text in texts]
        for line, text, value in zip(self.lines, texts, values, strict=True):
            if not math.isfinite(value):
                raise self._wrong(line, name, "values must be finite numbers", text)
        return np.array(values) / 100 if any(percent) else np.array(values)

    def amounts(self, name: str) -> Vector:
        """Convert a column to numbers >= 0."""
        values = self.numbers(name)
        for place in np.flatnonzero(values < 0)[:1].tolist():
            raise self._wrong(
                self.lines[place],
                name,
                "values must be finite numbers >= 0, so shift or rescale the column",
                self.texts(name)[place],
            )
        return values

    def client_column(self) -> str:
        """Return the column that names the client of each line: client, id or name, otherwise the first."""
        by_lower = {name.lower(): name for name in reversed(self.header)}
        return next((by_lower[name] for name in CLIENT_HEADERS if name in by_lower), self.header[0])

    def _wrong(self, line: int, name: str, rule: str, got: str) -> TableError:
        return TableError(f"{self.source}, line {line}, column {name}: {rule}; got {got!r}")


def read_delimited(path: Path) -> DelimitedTable:
    """Read a table from a file, or from standard input for `-`; the header determines the separator.

    An xlsx file gives its first sheet.
    """
    source = "standard input" if path == STDIN else str(path)
    content = _content(path)
    rows = read_sheet(content, source) if content.startswith(MARK) else _parted(_decoded(content, source), source)
    if len(rows) < 2:
        raise TableError(f"{source} needs a header line and at least one line below it; it has {len(rows)} line(s)")
    header = tuple(cell.strip() for cell in rows[0][1])
    _check_header(source, header)
    for line, cells in rows[1:]:
        if len(cells) != len(header):
            raise TableError(f"{source}, line {line} must have {len(header)} cells, as the header (got {len(cells)})")
    return DelimitedTable(source, header, tuple(line for line, _ in rows[1:]), tuple(cells for _, cells in rows[1:]))


def _parted(text: str, source: str) -> list[tuple[int, tuple[str, ...]]]:
    """Split non-empty lines into cells, with line numbers."""
    first, _, rest = text.partition("\n")
    hint = first.strip().removeprefix("sep=") if first.startswith("sep=") else ""  # a spreadsheet's hint
    body, skipped = (rest, 1) if hint else (text, 0)
    header_line = next((line for line in body.splitlines() if line.strip()), "")
    delimiter = hint or next((one for one in DELIMITERS if one in header_line), ",")
    try:
        reader = csv.reader(io.StringIO(body, newline=""), delimiter=delimiter)
        return [(reader.line_num + skipped, tuple(row)) for row in reader if any(map(str.strip, row))]
    except (csv.Error, TypeError) as error:
        raise TableError(f"{source} is not a table in text format ({error}); save it as CSV") from None


def _content(path: Path) -> bytes:
    if path == STDIN:
        content = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        if len(content) > MOST_TEXT_BYTES:
            raise TableError(f"standard input has more than {MOST_TEXT_BYTES:,} bytes; give a smaller table")
        return content
    try:
        return read_file(path, MOST_TEXT_BYTES, TableError)
    except FileNotFoundError:
        raise TableError(f"no file {path}; pass a CSV file with a header line, or - for standard input") from None
    except OSError as error:
        raise TableError(f"cannot read {path} ({error.strerror}); check the path and its permissions") from None


def _decoded(content: bytes, source: str) -> str:
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{source} is not CSV text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from None


def _check_header(source: str, header: Sequence[str]) -> None:
    if "" in header:
        raise TableError(f"{source}: column {header.index('') + 1} has no name in the header line; add one")
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice:
        raise TableError(f"{source}: the header names a column twice: {', '.join(twice)}; rename one")


def _number(text: str) -> float:
    """Convert a cell to a number; NaN if it is not one."""
    try:
        return float(text.removesuffix("%").rstrip().replace(",", "."))
    except ValueError:
        return math.nan


def read_sheet(content: bytes, source: str) -> list[tuple[int, tuple[str, ...]]]:
    """Read the non-empty rows of the first sheet: each row's number and its cells, padded to the widest row.

    A formula has its saved value. Numbers are as the file stores them: 50 % is 0.5. Dates are in ISO format.
    """
    try:
        rows = _rows(content, source)
    except TableError:
        raise
    except ModuleNotFoundError:
        raise TableError(
            f"{source} is an xlsx file and needs openpyxl; install the extra `data` (docs/install.md), or use CSV"
        ) from None
    except Exception as error:  # openpyxl raises many kinds of exceptions for a damaged file
        reason = f"{error.__cause__ or error or type(error).__name__}".partition("\n")[0]
        raise TableError(f"{source} is not a readable xlsx file ({reason}); save it again, or as CSV") from None
    width = max((len(cells) for _, cells in rows), default=0)
    return [(number, (*cells, *[""] * (width - len(cells)))) for number, cells in rows]


def _rows(content: bytes, source: str) -> list[tuple[int, list[str]]]:
    import openpyxl

    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        if "[Content_Types].xml" not in parts.namelist():
            raise TableError(f"{source} is not an xlsx file (perhaps ods); save it as xlsx or as CSV")
        for part in parts.infolist():
            if part.file_size > MAX_PART_BYTES:  # zipfile never unpacks more than this declared size
                raise TableError(f"{source} is too large: {part.filename} has over {MAX_PART_BYTES:,} bytes; use CSV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which do not affect values
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
        if not book.worksheets:
            raise TableError(f"{source} has no sheet; save it again with a sheet, or as CSV")
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong dimensions
        rows: list[tuple[int, list[str]]] = []
        width = 0
        for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
            if number > MAX_ROWS or len(row) > MAX_COLUMNS:
                raise ValueError(f"row {number:,} is beyond {MAX_ROWS:,} rows or {MAX_COLUMNS:,} columns")
            cells = [_text(value) for value in row]
            while cells and not cells[-1]:
                cells.pop()
            if cells:
                rows.append((number, cells))
                width = max(width, len(cells))
            if len(rows) * width > MAX_CELLS:
                raise TableError(f"{source} is too large: over {MAX_CELLS:,} cells; save it as CSV")
    return rows


def _text(value: object) -> str:
    if isinstance(value, datetime) and value.time() == time.min:
        return str(value.date())
    return "" if value is None else str(int(value) if isinstance(value, bool) else value).strip()
