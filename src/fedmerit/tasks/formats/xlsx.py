"""Spreadsheets: the cells of an xlsx file's first sheet as texts, read with openpyxl.

A file may come from anybody: the bytes that are unpacked and the cells that are kept are limited.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from datetime import datetime, time

from fedmerit.errors import TableError

MARK = b"PK\x03\x04"
"""The first bytes of an xlsx file, which is a zip archive."""
MAX_PART_BYTES = 50_000_000
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384  # of a sheet in Excel
MAX_CELLS = 10_000_000


def read_sheet(content: bytes, source: str) -> list[tuple[int, tuple[str, ...]]]:
    """The rows of the first sheet that are not empty: each row's number and its cells, all padded to the widest row.

    A formula has the value that was saved with it. Numbers are as the file stores them: 50 % is 0.5. Dates are in ISO
    format.
    """
    try:
        rows = _rows(content, source)
    except TableError:
        raise
    except ModuleNotFoundError:
        raise TableError(
            f"{source} is an xlsx file, which needs openpyxl: pip install 'fedmerit[data]', or save it as CSV"
        ) from None
    except Exception as error:  # openpyxl raises all kinds of exceptions on a damaged file
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
            if part.file_size > MAX_PART_BYTES:  # zipfile unpacks no more than this size
                raise TableError(f"{source} is too large: {part.filename} has over {MAX_PART_BYTES:,} bytes; use CSV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions that do not matter for the values
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
        if not book.worksheets:
            raise TableError(f"{source} has no sheet; save it again with a sheet, or as CSV")
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
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
