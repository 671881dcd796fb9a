"""Progress of a run on a console, and its notes as Python warnings."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedmerit.core.objectives import measure_label
from fedmerit.core.reasons import called
from fedmerit.core.state import Record
from fedmerit.core.types import ClientId, Note
from fedmerit.engine.loop import OnRecord
from fedmerit.errors import NoteWarning


@contextmanager
def progress(console: Console, rounds: int, done: int = 0, *, notes: bool = True) -> Iterator[OnRecord]:
    """Show a bar on a terminal, else a line per round; each note is shown once."""
    new_notes = NewNotes()

    def show_notes(record: Record) -> None:
        for line in new_notes(record) if notes else ():
            console.print(f"[yellow]round {record.index}: {escape(line)}[/]")

    if not console.is_terminal:

        def print_line(record: Record) -> None:
            show_notes(record)
            seconds = f"{sum(record.seconds.values()):.1f} s"
            console.print(f"round {record.index} of {rounds}{_state(record)}  {seconds}", markup=False)

        yield print_line
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")]
    with Progress(*columns, TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("round", total=rounds, completed=done, state="")

        def advance(record: Record) -> None:
            show_notes(record)
            bar.advance(task)
            if record.evaluation is not None:
                bar.update(task, state=_state(record).strip())

        yield advance


@contextmanager
def progress_bar(rounds: int, *, shown: bool) -> Iterator[OnRecord]:
    """Show `progress` on standard output without notes, which are warnings here; nothing unless `shown`."""
    if not shown:
        yield lambda record: None
        return
    with progress(Console(), rounds, notes=False) as advance:
        yield advance


class Warner:
    """Issue a `NoteWarning` for the first note of each kind, and for the first client that is left out."""

    def __init__(self, names: Sequence[str], stacklevel: int) -> None:
        self._names, self._stacklevel, self._seen = names, stacklevel, set[str]()

    def __call__(self, record: Record) -> None:
        """Warn about new notes of this round."""
        for note in _notes(record):
            who = "" if note.client is None else f"{self._names[note.client]} "
            self._tell(note.kind, f"round {record.index}: {who}{note.text}")
        for client, reason in record.dropped.items():
            self._tell("left-out", f"round {record.index}: {self._names[client]} was left out: {reason}")

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._seen:
            self._seen.add(kind)
            warnings.warn(text, NoteWarning, stacklevel=self._stacklevel)


def _notes(record: Record) -> tuple[Note, ...]:
    return (*record.notes, *(record.weights.notes if record.weights else ()))


class NewNotes:
    """Lines for a round: clients left out, rewards refused, and each note the first time its subject occurs."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names, self._seen = names, set[tuple[str, str]]()

    def __call__(self, record: Record) -> list[str]:
        """The new lines of this round."""
        lines = [f"{self._who(client)} left out: {reason}" for client, reason in record.dropped.items()]
        verdicts = record.rewards.verdicts.items()
        lines += [f"{self._who(i)} refused its reward: {verdict.reason}" for i, verdict in verdicts if verdict.reason]
        for note in _notes(record):
            if note.kind != "constant" and (note.kind, note.subject) not in self._seen:  # that one ends the output
                self._seen.add((note.kind, note.subject))
                lines.append(note.text if note.client is None else f"{self._who(note.client)} {note.text}")
        return lines

    def _who(self, client: ClientId) -> str:
        return called(self._names[client]) if client < len(self._names) else f"client {client}"


def _state(record: Record) -> str:
    """The measure, result of the search or of the rewards, and the privacy budget spent so far."""
    value = "" if record.value is None else f"  {measure_label(record.measure)} {record.value:.4f}"
    clip = record.numbers.get("clip")
    spent = "" if record.epsilon is None or clip is None else f"  epsilon {record.epsilon:.3g}, clip {clip:.3g}"
    return f"{value}{_order(record)}{spent}"


def _order(record: Record) -> str:
    """The chosen order of a search and the number of tested models; or the numbers of groups and accepted rewards."""
    if verdicts := record.rewards.verdicts.values():
        groups = len(record.groups.members) if record.groups else 1
        accepted = sum(verdict.accepted for verdict in verdicts)
        return f"  {groups} group{'s' * (groups > 1)}, {accepted} of {len(verdicts)} rewards accepted"
    if record.search is None or not record.search.results or record.label is None:
        return ""
    return f"  {record.label} ({record.search.models_sent} tested)"
