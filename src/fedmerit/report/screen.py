"""What a run shows on the screen: progress while it runs, tables at the end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedmerit.core.measures import percentiles
from fedmerit.core.state import Record
from fedmerit.core.weights import ClientWeight, Note
from fedmerit.engine.loop import OnRecord


@contextmanager
def progress(console: Console, rounds: int, label: str = "", done: int = 0, every: int = 1) -> Iterator[OnRecord]:
    """A bar on a terminal, a plain line every so many rounds elsewhere; each kind of note is shown once."""
    teller = _Notes(console)
    if not console.is_terminal:
        yield lambda record: _line(console, teller, record, label or f"of {rounds}", every)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")]
    with Progress(*columns, TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(escape(label or "round"), total=rounds, completed=done, state="")

        def advance(record: Record) -> None:
            teller(record)
            bar.advance(task)
            if record.evaluation is not None:
                bar.update(task, state=f"accuracy {record.evaluation.accuracy:.4f}{_order(record)}")

        yield advance


def json_line(record: Record) -> str:
    """One round for machines."""
    tested = record.evaluation
    low, middle, high = (None, None, None) if tested is None else percentiles(tested.local)
    return json.dumps(
        {
            "round": record.index,
            "accuracy": _known(None if tested is None else tested.accuracy),
            "p10": _known(low),
            "p50": _known(middle),
            "p90": _known(high),
            "clients": len(record.ids),
            "priority": record.priority,
            "exchanges": record.aggregation.exchanges if record.aggregation else 0,
            "evaluations": record.aggregation.evaluations if record.aggregation else 0,
            "tests": record.aggregation.tests if record.aggregation else 0,
            "groups": len(record.groups.members) if record.groups else 1,
            "rewards": len(record.rewards.verdicts),
            "accepted": sum(verdict.accepted for verdict in record.rewards.verdicts.values()),
            "bytes_down": record.bytes_down,
            "bytes_up": record.bytes_up,
            "left_out": {str(client): reason for client, reason in record.left_out.items()},
            "seconds": sum(record.seconds.values()),
        }
    )


def _known(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or math.isnan(value) else value


def weights_table(title: str, priority: Sequence[str], rows: Iterable[ClientWeight], names: Sequence[str]) -> Table:
    """Criteria -> score -> weight, a line per client; the weight before the cap where one cut any."""
    rows = list(rows)
    cut = any(row.earned != row.weight for row in rows)
    grid = Table(title=escape(title), title_justify="left", caption="value (normalised)", caption_justify="left")
    grid.add_column("client", no_wrap=True)
    for name in priority:
        grid.add_column(escape(name), justify="right", overflow="fold")
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


class _Notes:
    """Shows a note the first time its kind and subject occur."""

    def __init__(self, console: Console) -> None:
        self._console, self._seen = console, set[tuple[str, str]]()

    def __call__(self, record: Record) -> None:
        for client, reason in record.left_out.items():
            self._console.print(f"[yellow]round {record.index}: client {client} left out: {escape(reason)}[/]")
        for client, verdict in record.rewards.verdicts.items():
            if verdict.reason:
                text = f"round {record.index}: client {client} refused its reward: {verdict.reason}"
                self._console.print(f"[yellow]{escape(text)}[/]")
        for note in (*record.notes, *(record.weights.notes if record.weights else ())):
            who = "" if note.client is None else f"client {note.client} "
            show_note(self._console, note, f"round {record.index}: {who}") if self._new(note) else None

    def _new(self, note: Note) -> bool:
        key = (note.kind, note.subject)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def show_note(console: Console, note: Note, before: str = "") -> None:
    """One note on the weights."""
    console.print(f"[yellow]{before}{escape(note.text)}[/]")


def _line(console: Console, teller: _Notes, record: Record, label: str, every: int) -> None:
    teller(record)
    if record.index % every:
        return
    accuracy = "" if record.evaluation is None else f"  accuracy {record.evaluation.accuracy:.4f}"
    seconds = f"{sum(record.seconds.values()):.1f} s"
    console.print(f"round {record.index} {label}{accuracy}{_order(record)}  {seconds}", markup=False)


def _order(record: Record) -> str:
    """The order that a search took and how many models were tested for it; or groups, and what became of rewards."""
    if verdicts := record.rewards.verdicts.values():
        groups = len(record.groups.members) if record.groups else 1
        taken = sum(verdict.accepted for verdict in verdicts)
        return f"  {groups} group{'s' * (groups > 1)}, {taken} of {len(verdicts)} rewards taken"
    aggregation = record.aggregation
    if aggregation is None or not aggregation.results or aggregation.candidate is None:
        return ""
    return f"  {aggregation.candidate.label} ({aggregation.evaluations} tested)"
