"""Sinks: where the rounds of a run go beside its ledger, as `--log NAME:WHERE` asks: files and experiment trackers.

A sink that fails warns once, and the run goes on without it. What each has taken is told by the sink itself, or kept in
the run's folder: a resumed run logs no round twice.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Protocol, TypeAlias

from fedmerit.engine.logged import LoggedRound, LoggedRun, read_rounds, read_run
from fedmerit.errors import ConfigError, NoteWarning, UnknownName
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.strict_json import load_json

LOGS = "logs.json"
"""The file of a run's folder that says where each sink keeps the run, and what it took of it."""


class Sink(Protocol):
    """Takes the rounds of one run. `place` finds the same place again; `keeps_files` tells whether it takes files."""

    place: str
    keeps_files: bool

    def last_round(self) -> int | None:
        """The last round that it has; None where it cannot tell."""
        ...

    def log(self, one: LoggedRound) -> None:
        """Take a round; it is there, for other readers too, when this returns."""
        ...

    def keep(self, files: Sequence[Path]) -> None:
        """Take files: the report and the model of a run that has ended."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


MakeSink: TypeAlias = Callable[[str, LoggedRun, str | None], Sink]
"""(where, the run, the place it had before or None) -> a sink."""
MakeFiles: TypeAlias = Callable[[Path], Sequence[Path]]
"""(a folder for them) -> the report and the model of a run."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink: where its maker is, the package that it needs ("" for none), what WHERE means."""

    maker: str
    package: str
    where: str


SINKS: Mapping[str, SinkKind] = MappingProxyType(
    {
        "csv": SinkKind("fedmerit.engine.sink_files:CsvSink", "", "a folder, for one table per run"),
        "jsonl": SinkKind("fedmerit.engine.sink_files:JsonlSink", "", "a folder, for one file per run"),
        "tensorboard": SinkKind("fedmerit.engine.tensorboard:TensorBoardSink", "tensorboard", "its --logdir"),
        "mlflow": SinkKind("fedmerit.engine.trackers:MlflowSink", "mlflow", "a database file or the server's URI"),
        "wandb": SinkKind("fedmerit.engine.trackers:WandbSink", "wandb", "a project; offline, unless WANDB_MODE says"),
        "trackio": SinkKind("fedmerit.engine.trackers:TrackioSink", "trackio", "a project"),
    }
)
"""The sinks by name."""
ON_DISK = ("csv", "jsonl", "tensorboard", "mlflow")
"""Those whose WHERE is a path, unless it is an address."""


def check_logs(logs: Sequence[str]) -> None:
    """Refuse what cannot be logged to, before a run begins: unknown names, missing packages, no place.

    >>> check_logs(["jsonl:runs/logs"])
    """
    for text in logs:
        name, _, where = text.partition(":")
        if name not in SINKS:
            raise UnknownName("log", name, SINKS)
        kind = SINKS[name]
        if not where:
            raise ConfigError(f"--log {name} needs a place: {name}:WHERE, WHERE being {kind.where}")
        if kind.package and find_spec(kind.package) is None:
            raise ConfigError(f"--log {name} needs {kind.package}, which is missing: pip install 'fedmerit[{name}]'")


def located_logs(logs: Sequence[str]) -> list[str]:
    """The same, checked, with whole paths, for a process in another folder."""
    check_logs(logs)
    pairs = [text.partition(":")[::2] for text in logs]
    local = [name in ON_DISK and "://" not in where for name, where in pairs]
    return [
        f"{name}:{Path(where).expanduser().absolute()}" if here else f"{name}:{where}"
        for (name, where), here in zip(pairs, local, strict=True)
    ]


class Sinks:
    """The sinks of one run; use `open_sinks`."""

    def __init__(self, logs: Sequence[str], run: LoggedRun, folder: Path | None) -> None:
        self._folder, self._kept = folder, _read_kept(folder)
        self._open: dict[str, tuple[Sink, int]] = {}
        for text in dict.fromkeys(logs):
            name, _, where = text.partition(":")
            module, _, attribute = SINKS[name].maker.partition(":")
            place, last = self._kept.get(text, (None, 0))
            with self._excused(text):
                make: MakeSink = getattr(import_module(module), attribute)
                sink = make(where, run, place)
                told = sink.last_round()
                self._open[text] = sink, last if told is None else told
        self._remember()

    def log(self, ledger: Ledger) -> None:
        """Every sink takes the rounds of the ledger that it does not have yet."""
        for text, (sink, last) in [*self._open.items()]:
            with self._excused(text):
                for one in read_rounds(ledger, last):
                    sink.log(one)
                    self._open[text] = sink, one.index
        if any(sink.last_round() is None for sink, _ in self._open.values()):
            self._remember()

    def finish(self, make_files: MakeFiles) -> None:
        """Every sink that keeps files takes those that are made for it."""
        takers = [(text, sink) for text, (sink, _) in self._open.items() if sink.keeps_files]
        if not takers:
            return
        with TemporaryDirectory() as folder:
            files = make_files(Path(folder))
            for text, sink in takers:
                with self._excused(text):
                    sink.keep(files)

    def close(self) -> None:
        """Let go of all."""
        for text, (sink, _) in [*self._open.items()]:
            with self._excused(text):
                sink.close()

    def _remember(self) -> None:
        """Where each sink keeps the run, and its last round, for a resume."""
        now = {text: (sink.place, last) for text, (sink, last) in self._open.items()}
        if self._folder is not None and now and self._kept | now != self._kept:
            self._kept |= now
            with suppress(Exception):
                write_new_file(self._folder / LOGS, json.dumps(self._kept))

    @contextmanager
    def _excused(self, text: str) -> Iterator[None]:
        """Whatever a sink raises is told once, and that sink is left alone from then on."""
        try:
            yield
        except Exception as error:
            sink = self._open.pop(text, (None, 0))[0]
            with suppress(Exception):
                if sink is not None:
                    sink.close()
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            warnings.warn(f"--log {text} failed ({reason}); the run goes on without it", NoteWarning, stacklevel=2)


def _read_kept(folder: Path | None) -> dict[str, tuple[str | None, int]]:
    """What earlier processes of this run logged where; nothing where that cannot be read."""
    with suppress(Exception):
        if folder is not None and (folder / LOGS).is_file():
            kept = load_json((folder / LOGS).read_text(encoding="utf-8"), LOGS)
            return {str(text): (str(place), int(last)) for text, (place, last) in kept.items()}
    return {}


@contextmanager
def open_sinks(logs: Sequence[str], ledger: Ledger, folder: Path | None) -> Iterator[Sinks]:
    """The sinks that were asked for, of the run in a ledger and its folder; without one it is never resumed."""
    name = time.strftime("run-%Y%m%d-%H%M%S") if folder is None else folder.resolve().name
    sinks = Sinks(logs, read_run(ledger, name), folder) if logs else Sinks((), LoggedRun(name, {}, ()), None)
    try:
        yield sinks
    finally:
        sinks.close()
