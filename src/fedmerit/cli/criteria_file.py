"""A table of criteria from a text file, to weigh clients without training."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmerit.core.criteria.table import lookup_key, symbol_of
from fedmerit.core.showing import shown
from fedmerit.core.types import Matrix
from fedmerit.errors import TableError, did_you_mean
from fedmerit.tasks.formats.delimited import DelimitedTable, read_delimited

MOST_NAMES = 10_000
"""Columns that a misspelt name is compared with."""


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """Clients, the names of the columns that may be criteria, and the text that they are read from."""

    clients: tuple[str, ...]
    names: tuple[str, ...]
    table: DelimitedTable

    def column_name(self, wanted: str) -> str:
        """The column that a name means: itself, or the same criterion under its symbol or full name."""
        if wanted in self.names:
            return wanted
        meant = [name for name in self.names if _key(name) == _key(wanted)]
        if len(meant) != 1:
            near = did_you_mean(wanted, self.names[:MOST_NAMES])
            raise TableError(f"the file has no column {wanted!r}{near}; it has: {shown(self.names)}")
        return meant[0]

    def columns(self, names: Sequence[str]) -> Matrix:
        """These columns of the file, in this order."""
        columns = list(map(self.column_name, names))
        twice = sorted(name for name, times in Counter(columns).items() if times > 1)
        if twice:
            raise TableError(f"a priority names each criterion once; repeated: {', '.join(twice)}")
        return np.column_stack([self.table.amounts(name) for name in columns])


def _key(name: str) -> str:
    return lookup_key(symbol_of(name))


def read_criteria(path: Path) -> CriteriaFile:
    """Read a header line, then a line per client; the column client, id or name, or the first one, names them."""
    if path.suffix == ".toml":
        raise TableError(f"{path} is a configuration or a study, not a table; use `fedmerit run` or `fedmerit compare`")
    table = read_delimited(path)
    if len(table.header) < 2:
        raise TableError(
            f"{table.source} needs a column of clients and at least one criterion; it has only {table.header[0]!r}"
        )
    who = table.client_column()
    clients, seen = table.texts(who), set[str]()
    for line, client in zip(table.lines, clients, strict=True):
        if not client or client in seen:
            raise TableError(
                f"{table.source}, line {line}: every client needs its own name; got {client!r} again or empty"
            )
        seen.add(client)
    return CriteriaFile(tuple(clients), tuple(name for name in table.header if name != who), table)
