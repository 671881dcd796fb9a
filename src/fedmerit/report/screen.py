"""What a run shows on the screen: a line for machines, tables at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from fedmerit.core.criteria.table import display_name
from fedmerit.core.measures import percentiles
from fedmerit.core.state import Record
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.tasks.data_report import DataReport

MOST_LINES = 60
"""Suspicions on the screen."""
LONGEST_NAME = 20
"""Names of clients up to this length stay on one line, however narrow the screen."""


def json_line(record: Record) -> str:
    """One round for machines."""
    tested = record.evaluation
    low, middle, high = (None, None, None) if record.local is None else percentiles(record.local)
    return dump_json(
        {
            "round": record.index,
            "accuracy": None if tested is None else tested.accuracy,
            "measure": record.measure,
            "value": record.value,
            "p10": low,
            "p50": middle,
            "p90": high,
            "clients": len(record.ids),
            "priority": record.priority,
            "exchanges": record.search.exchanges if record.search else 0,
            "evaluations": record.search.models_sent if record.search else 0,
            "tests": record.search.tests if record.search else 0,
            "groups": len(record.groups.members) if record.groups else 1,
            "rewards": len(record.rewards.verdicts),
            "accepted": sum(verdict.accepted for verdict in record.rewards.verdicts.values()),
            "epsilon": record.epsilon,
            "clip": record.numbers.get("clip"),
            "bytes_down": record.bytes_down,
            "bytes_up": record.bytes_up,
            "left_out": {str(client): reason for client, reason in record.dropped.items()},
            "seconds": sum(record.seconds.values()),
            "notes": [note.text for note in record.notes],
        }
    )


def weights_table(title: str, priority: Sequence[str], rows: Iterable[ClientWeight], names: Sequence[str]) -> Table:
    """Criteria -> score -> weight, a line per client; the weight before the cap where one cut any."""
    rows = list(rows)
    cut = any(row.earned != row.weight for row in rows)
    grid = Table(title=escape(title), title_justify="left", caption="value (normalised)", caption_justify="left")
    longest = max((cell_len(names[row.id]) for row in rows), default=0)
    grid.add_column("client", no_wrap=longest <= LONGEST_NAME, overflow="fold")
    for name in priority:  # a value and what it was normalised to stay whole, one below the other where it is narrow
        whole = max((cell_len(f"{row.criteria[name]:.4g}") for row in rows), default=0)
        words = escape(display_name(name))
        grid.add_column(words, justify="right", overflow="fold", min_width=max(whole, len("(0.000)")))
    grid.add_column("score", justify="right", no_wrap=True)
    if cut:
        grid.add_column("uncapped", justify="right", no_wrap=True)
    grid.add_column("weight", justify="right", style="bold", no_wrap=True)
    for row in rows:
        cells = [f"{row.criteria[name]:.4g} ({row.normalised[name]:.3f})" for name in priority]
        before = [f"{row.earned:.2%}"] if cut else []
        grid.add_row(escape(names[row.id]), *cells, f"{row.score:.4g}", *before, f"{row.weight:.2%}")
    return grid


def list_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table of texts."""
    grid = Table(title=title, title_justify="left")
    for place, name in enumerate(header):
        grid.add_column(name, no_wrap=place == 0)
    for row in rows:
        grid.add_row(*map(escape, row))
    return grid


def wide_tables(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Iterator[Table]:
    """A table of texts in as many parts as a screen of that width needs; each begins with the first column.

    >>> parts = wide_tables("Facts", ("client", "age", "battery"), [("north", "34", "0.8")], width=20)
    >>> [[column.header for column in part.columns] for part in parts]
    [['client', 'age'], ['client', 'battery']]
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(cell_len, column)) + 3 for column in columns]  # two spaces and a border
    first, *others = range(len(columns))
    while True:
        ends = 1 + widths[first] + np.cumsum([widths[place] for place in others])
        fitting = max(int((ends <= width).sum()), 1)
        part, others = [first, *others[:fitting]], others[fitting:]
        names, *lines = zip(*(columns[place] for place in part), strict=True)
        yield list_table(title, names, lines)
        if not others:
            return
        title = ""


def data_tables(data: DataReport) -> Iterator[Table | str]:
    """Files and columns of a table, and every suspicion."""
    if data.files:
        rows = [[str(value) for value in file.values()] for file in data.files]
        yield list_table("Files", tuple(data.files[0]), rows)
    header = ("column", "kind", "role", "gaps", "distinct", "values")
    yield list_table("Columns", header, [[str(one.get(name, "")) for name in header] for one in data.columns])
    for number, one in enumerate(data.suspicions[:MOST_LINES], 1):
        yield f"{number}. {one.text}"
    more = len(data.suspicions) - MOST_LINES
    if more > 0 or not data.suspicions:
        yield f"... and {more} more; --json has all" if more > 0 else "nothing suspicious was found in the data"
