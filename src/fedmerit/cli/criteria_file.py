"""A table of criteria from a text file, for weighing clients without any training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.errors import TableError, did_you_mean
from fedmerit.tasks.formats.delimited import DelimitedTable, read_delimited


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """Clients, the names of the columns that may be criteria, and the text that they are read from."""

    clients: tuple[str, ...]
    names: tuple[str, ...]
    table: DelimitedTable

    def columns(self, priority: Sequence[str], lower: Collection[str] = ()) -> Matrix:
        """The columns of a priority, most important first; those in `lower`, where less is better, turned round."""
        for name in (*lower, *priority):
            if name not in self.names:
                near = did_you_mean(name, self.names)
                raise TableError(f"the file has no column {name!r}{near}; it has: {', '.join(self.names)}")
        twice = sorted(name for name, times in Counter(priority).items() if times > 1)
        if twice:
            raise TableError(f"a priority names each criterion once; repeated: {', '.join(twice)}")
        idle = [name for name in lower if name not in priority]
        if idle:
            raise TableError(f"{', '.join(idle)} is not in the priority {', '.join(priority)}: add it, or leave it out")
        columns = {name: self.table.amounts(name) for name in priority}
        return np.column_stack([turned(values) if name in lower else values for name, values in columns.items()])


def turned(values: Vector) -> Vector:
    """largest + smallest - value: of a column where less is better, one where more is, in the same range.

    >>> turned(np.array([1.0, 2.0, 5.0])).tolist()
    [5.0, 4.0, 1.0]
    """
    return np.asarray(values.max() + values.min() - values)


def read_criteria(path: Path) -> CriteriaFile:
    """A header line, then a line per client; clients stand in the column client, id or name, or in the first one."""
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
                f"{table.source}, line {line}: every client has a name of its own; got {client!r} again or empty"
            )
        seen.add(client)
    return CriteriaFile(tuple(clients), tuple(name for name in table.header if name != who), table)
