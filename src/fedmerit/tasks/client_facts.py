"""Facts about clients from a configuration: a CSV file with a line per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedmerit.config.task import FactsConfig
from fedmerit.core.facts import FACTS
from fedmerit.core.types import ClientId
from fedmerit.errors import DataError, TableError
from fedmerit.tasks.federation import Federation

if TYPE_CHECKING:
    from fedmerit.tasks.formats.delimited import DelimitedTable


def with_facts(federation: Federation, config: FactsConfig | None, *, by_number: bool = True) -> Federation:
    """Return the federation with a number or a word per client for each fact, if the configuration has any.

    Without `by_number`, a file must name the clients: numbers change when a client leaves.
    """
    if config is None:
        return federation
    from fedmerit.tasks.formats.delimited import read_delimited  # most tasks read no file of facts

    clients = {client if by_number else -1 - client: name for client, name in enumerate(federation.names)}
    path = Path(config.file)
    if not path.is_file():
        raise DataError(
            f"facts.file: no file {path}; a relative path starts where the command is called, in {Path.cwd()}"
        )
    table = read_delimited(path)
    who = table.client_column()
    places = _places(table, who, clients)
    columns = {header: _values(table, header) for header in table.header if header != who}
    if known := [name for name in columns if name in FACTS]:
        raise DataError(f"[facts]: {known[0]!r} is the name of a fact that clients measure; rename the column")
    if not columns:
        raise TableError(f"{table.source} has only the column {who!r}; add a column with a fact")
    facts = {header: tuple(values[place] for place in places) for header, values in columns.items()}
    return replace(federation, facts=facts)


def _places(table: DelimitedTable, who: str, names: Mapping[ClientId, str]) -> list[int]:
    """Line of each client, by its name or number."""
    written = table.texts(who)
    if twice := sorted({name for name in written if written.count(name) > 1}):
        raise TableError(f"{table.source} needs one line per client (client {twice[0]!r} has several)")
    lines = {name: place for place, name in enumerate(written)}
    numbers = [lines.get(name, lines.get(str(number))) for number, name in names.items()]
    missing = [name for name, place in zip(names.values(), numbers, strict=True) if place is None]
    if missing:
        few = ", ".join(missing[:3])
        raise TableError(
            f"{table.source} has no line for {len(missing)} of {len(names)} clients: {few}; column {who!r} must have "
            f"their names or their numbers, from 0 (got {', '.join(written[:3])})"
        )
    return [place for place in numbers if place is not None]


def _values(table: DelimitedTable, header: str) -> list[float | str]:
    """Numbers if all cells are numbers, otherwise words; a number below 0 is an error."""
    try:
        table.numbers(header)
    except TableError:
        return list(table.texts(header))
    return [float(number) for number in table.amounts(header)]
