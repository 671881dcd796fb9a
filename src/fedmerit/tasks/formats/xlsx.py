"""Spreadsheets: the cells of an xlsx file's first sheet as texts, read with the standard library alone.

An xlsx file is a zip of XML parts. It may come from anybody, so what is unpacked is bounded, and parts that declare
entities of their own are refused.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from fedmerit.config.reading import DAMAGED
from fedmerit.errors import TableError

MARK = b"PK\x03\x04"
"""What the file of a spreadsheet begins with."""
MOST_BYTES = 50_000_000
"""Of a part, unpacked."""
MOST_COLUMNS = 16_384
"""As many as a sheet can have."""
STRINGS, WORKBOOK, LINKS = "xl/sharedStrings.xml", "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def read_sheet(content: bytes, source: str) -> list[tuple[int, tuple[str, ...]]]:
    """The rows of the first sheet that are not empty: the number of each, and its cells, as many as the widest has.

    Numbers come as the file keeps them: of 50 % that is 0.5.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            names = set(parts.namelist())
            if WORKBOOK not in names:
                raise TableError(f"{source} is no xlsx file (perhaps ods); save it as xlsx or as CSV")
            strings = [_text(one) for one in _part(parts, STRINGS, source)] if STRINGS in names else []
            rows = list(_rows(_part(parts, _first_sheet(parts, source), source), strings))
    except (*DAMAGED, ElementTree.ParseError, LookupError, ValueError) as error:
        raise TableError(f"{source} is not a readable xlsx file ({error}); save it again, or as CSV") from None
    width = max((max(cells, default=-1) + 1 for _, cells in rows), default=0)
    return [(number, tuple(cells.get(place, "") for place in range(width))) for number, cells in rows if cells]


def _part(parts: zipfile.ZipFile, name: str, source: str) -> Element:
    with parts.open(name) as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise TableError(f"{source} is too large: {name} has over {MOST_BYTES:,} bytes; save it as CSV")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise TableError(f"{source} declares entities of its own, which no spreadsheet needs; save it as CSV")
    return ElementTree.fromstring(text)


def _first_sheet(parts: zipfile.ZipFile, source: str) -> str:
    """The part that holds it: the workbook names it by a key, and the links say where that is."""
    sheet = next((one for one in _part(parts, WORKBOOK, source).iter() if _tag(one) == "sheet"), None)
    if sheet is None:
        raise ValueError("it has no sheet")
    targets = {link.get("Id"): link.get("Target", "") for link in _part(parts, LINKS, source)}
    target = targets[sheet.get(ID)]
    return target.removeprefix("/") if target.startswith("/") else f"xl/{target}"


def _rows(sheet: Element, strings: list[str]) -> Iterator[tuple[int, dict[int, str]]]:
    """Each row's number and its cells by column; cells and rows that say no place follow the one before."""
    number = 0
    for row in (one for one in sheet.iter() if _tag(one) == "row"):
        number = int(row.get("r", number + 1))
        cells: dict[int, str] = {}
        place = -1
        for cell in row:
            place = _column(cell.get("r")) if cell.get("r") else place + 1
            if place >= MOST_COLUMNS:
                raise ValueError(f"row {number} has over {MOST_COLUMNS:,} columns")
            if text := _value(cell, strings).strip():
                cells[place] = text
        yield number, cells


def _value(cell: Element, strings: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return _text(cell)
    value = next((one.text or "" for one in cell if _tag(one) == "v"), "")
    return strings[int(value)] if cell.get("t") == "s" else value


def _text(element: Element) -> str:
    """All that is written in it, however it is formatted."""
    return "".join(one.text or "" for one in element.iter() if _tag(one) == "t")


def _column(place: str | None) -> int:
    """B7 is in column 1.

    >>> _column("A1"), _column("AB12")
    (0, 27)
    """
    letters = re.match(r"[A-Z]{1,3}(?=\d)", place or "")
    if letters is None:
        raise ValueError(f"no cell is called {place!r}")
    column = 0
    for letter in letters[0]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
