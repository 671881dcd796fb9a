"""A table of criteria from a CSV file, for weighing clients without any training."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmerit.core.types import Matrix
from fedmerit.errors import TableError, did_you_mean

CLIENT_HEADERS = ("client", "id", "name")


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """Clients, the names of the criteria and their raw values (clients x criteria)."""

    clients: tuple[str, ...]
    names: tuple[str, ...]
    raw: Matrix

    def columns(self, priority: Sequence[str]) -> Matrix:
        """The columns of a priority, most important first."""
        for name in priority:
            if name not in self.names:
                near = did_you_mean(name, self.names)
                raise TableError(f"the file has no column {name!r}{near}; it has: {', '.join(self.names)}")
        twice = {name for name in priority if list(priority).count(name) > 1}
        if twice:
            raise TableError(f"a priority names each criterion once; repeated: {', '.join(sorted(twice))}")
        return self.raw[:, [self.names.index(name) for name in priority]]


def read_criteria(path: Path) -> CriteriaFile:
    """A header line, then a line per client; clients stand in the column client, id or name, or in the first one."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if any(map(str.strip, row))]
    except FileNotFoundError:
        raise TableError(f"no file {path}; give a CSV file with a header such as client,DS,CB,IS") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path} is not CSV text: {error}") from None
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror}") from None
    if len(lines) < 2:
        raise TableError(f"{path} needs a header line and at least one client; it has {len(lines)} line(s)")
    header = [cell.strip() for cell in lines[0][1]]
    _check_header(path, header)
    return _parse(path, header, lines[1:])


def _check_header(path: Path, header: list[str]) -> None:
    if "" in header:
        raise TableError(f"{path}: column {header.index('') + 1} has no name in the header line")
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise TableError(f"{path}: the header names a column twice: {', '.join(sorted(twice))}")
    if len(header) < 2:
        raise TableError(f"{path} needs a column of clients and at least one criterion; it has only {header[0]!r}")


def _parse(path: Path, header: list[str], lines: list[tuple[int, list[str]]]) -> CriteriaFile:
    lower = [name.lower() for name in header]
    who = next((lower.index(name) for name in CLIENT_HEADERS if name in lower), 0)
    names = [name for place, name in enumerate(header) if place != who]
    clients: list[str] = []
    raw = np.empty((len(lines), len(names)))
    for row, (number, cells) in enumerate(lines):
        if len(cells) != len(header):
            raise TableError(f"{path}, line {number}: {len(cells)} cells for {len(header)} columns")
        client = cells[who].strip()
        if not client or client in clients:
            raise TableError(
                f"{path}, line {number}: every client has a name of its own; got {client!r} again or empty"
            )
        clients.append(client)
        values = [cell for place, cell in enumerate(cells) if place != who]
        raw[row] = [_number(path, number, name, cell) for name, cell in zip(names, values, strict=True)]
    return CriteriaFile(tuple(clients), tuple(names), raw)


def _number(path: Path, line: int, name: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise TableError(f"{path}, line {line}, column {name}: values are finite numbers >= 0; got {cell.strip()!r}")
    return value
