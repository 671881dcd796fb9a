"""Sinks that are plain files: a tidy CSV table, and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from fedmerit.engine.logged import LoggedRound, LoggedRun
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json

HEADER = ("round", "client", "measure", "value")
WHOLE = "round"
"""The measure of the last line of each round: what comes after the last of them is half a round."""


class CsvSink:
    """FOLDER/RUN.csv: a line per round, client (empty: the run) and measure."""

    keeps_files = False

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        self._names = run.names
        self._path = _open_path(where, f"{run.name}.csv", place)
        self.place = str(self._path)
        self._last = self._mend()

    def _mend(self) -> int:
        """Cut half a round that a kill left; the last whole one."""
        if not self._path.exists():
            self._path.write_text(_csv_lines([HEADER]), encoding="utf-8")
            return 0
        with self._path.open("rb+") as file:
            end, last = 0, 0
            for line in file:
                index, _, rest = line.decode().partition(",")
                if end == 0 or (rest.startswith(f",{WHOLE},") and line.endswith(b"\n")):
                    end, last = file.tell(), int(index) if index.isdecimal() else 0
            file.truncate(end)
        return last

    def last_round(self) -> int:
        """The last round whose lines are all there."""
        return self._last

    def log(self, one: LoggedRound) -> None:
        """All lines of a round in one write."""
        lines: list[Sequence[object]] = [
            (one.index, self._names[client], name, repr(value))
            for name, values in one.clients.items()
            for client, value in values.items()
        ]
        lines += [(one.index, "", name, repr(value)) for name, value in one.values.items()]
        lines += [(one.index, "", WHOLE, one.index)]
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_csv_lines(lines))
        self._last = one.index

    def keep(self, files: Sequence[Path]) -> None:
        """A table holds no files."""

    def close(self) -> None:
        """Nothing is held."""


class JsonlSink:
    """FOLDER/RUN.jsonl: a line with the run's settings, then a line per round with numbers and events."""

    keeps_files = False

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        self._names = run.names
        self._path = _open_path(where, f"{run.name}.jsonl", place)
        self.place = str(self._path)
        if not self._path.exists():
            self._append({"run": run.name, "settings": dict(run.settings), "clients": run.names})
        self._last = self._mend()

    def _mend(self) -> int:
        """Cut half a line that a kill left; the last round that is there."""
        with self._path.open("rb+") as file:
            end, last = 0, 0
            for line in file:
                if line.endswith(b"\n"):
                    end, last = file.tell(), int(json.loads(line).get("round", 0))
            file.truncate(end)
        return last

    def last_round(self) -> int:
        """The round of the last line."""
        return self._last

    def log(self, one: LoggedRound) -> None:
        """One line."""
        clients = {
            name: {self._names[client]: value for client, value in values.items()}
            for name, values in one.clients.items()
        }
        events = [
            {"kind": event.kind, "client": None if event.client is None else self._names[event.client]}
            | {"text": event.text}
            for event in one.events
        ]
        self._append({"round": one.index, "values": dict(one.values), "clients": clients, "events": events})
        self._last = one.index

    def _append(self, line: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{dump_json(line)}\n")

    def keep(self, files: Sequence[Path]) -> None:
        """Lines hold no files."""

    def close(self) -> None:
        """Nothing is held."""


def free_path(folder: Path, name: str) -> Path:
    """folder/name, or with a number where another run has that already."""
    stem, dot, ending = name.rpartition(".") if name.endswith((".csv", ".jsonl")) else (name, "", "")
    tries = (folder / (name if i == 1 else f"{stem}-{i}{dot}{ending}") for i in count(1))
    return next(path for path in tries if not path.exists())


def _open_path(where: str, name: str, place: str | None) -> Path:
    folder = Path(where).expanduser().absolute()
    if folder.is_file():
        raise ConfigError(f"a log goes to a folder, one file per run; {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    return Path(place) if place else free_path(folder, name)


def _csv_lines(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
