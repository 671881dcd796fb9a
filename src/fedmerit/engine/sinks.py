"""Sinks: the files and experiment trackers that receive every round of a run, as `--log NAME:WHERE` asks.

Rounds come from the ledger. A resumed run logs no round twice. A sink that fails warns once, and the run continues.
"""

from __future__ import annotations

import json
import math
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from fedmerit.config.schema import flatten
from fedmerit.core.state import SERVER
from fedmerit.engine.sink_kinds import SINKS, Sink, Target
from fedmerit.errors import ConfigError, NoteWarning, UnknownName
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.strict_json import load_json


def check_logs(logs: Sequence[str]) -> None:
    """Raise an error, before a run begins, for an unknown sink, a missing package or a missing WHERE."""
    for text in logs:
        name, _, where = text.partition(":")
        if name not in SINKS:
            raise UnknownName("log", name, SINKS)
        if not where:
            raise ConfigError(f"--log {name} needs a place: {name}:WHERE, WHERE being {SINKS[name][1]}")
        if name not in ("csv", "jsonl") and find_spec(name) is None:
            raise ConfigError(f"--log {name} needs {name}, which is missing: pip install 'fedmerit[{name}]'")


def located_logs(logs: Sequence[str]) -> list[str]:
    """Check the sinks and make their paths absolute, for a process in another folder."""
    check_logs(logs)
    pairs = [text.partition(":")[::2] for text in logs]
    return [f"{n}:{w if n == 'wandb' or '://' in w else Path(w).expanduser().absolute()}" for n, w in pairs]


class Sinks:
    """The open sinks of the run in a ledger and its folder; a run without a folder is never resumed."""

    def __init__(self, logs: Sequence[str], ledger: Ledger, folder: Path | None) -> None:
        self._open: dict[str, Sink] = {}
        if not logs:
            return
        self._path = None if folder is None else folder / "logs.json"  # place and last round of each sink
        self._recorded: dict[str, tuple[str | None, int]] = {}
        with suppress(Exception):  # without a readable file, the sinks start again
            recorded = load_json(self._path.read_text(encoding="utf-8"), self._path.name) if self._path else {}
            self._recorded = {text: (str(place), int(last)) for text, (place, last) in recorded.items()}
        self._labels = client_labels(ledger.names())
        run = time.strftime("run-%Y%m%d-%H%M%S") if folder is None else folder.resolve().name
        meta = ledger.meta()
        known = json.loads(meta.get("config") or meta.get("settings") or "{}")
        settings = {key: value for key, value in flatten(known).items() if value is not None}
        for text in dict.fromkeys(logs):
            name, _, where = text.partition(":")
            with self._guarded(text):
                self._open[text] = SINKS[name][0](Target(where, run, settings, *self._recorded.get(text, (None, 0))))
        self._record()

    def log(self, ledger: Ledger) -> None:
        """Give every sink the rounds of the ledger that it does not have yet."""
        if not self._open:
            return
        for values in read_rounds(ledger, self._labels, min(sink.last for sink in self._open.values())):
            for text, sink in [*self._open.items()]:
                if sink.last < values["round"]:
                    with self._guarded(text):
                        sink.log(values)
                        sink.last = int(values["round"])
            self._record()

    def finish(self, make_files: Callable[[Path], Sequence[Path]]) -> None:
        """Make the model and the report in a temporary folder, for every sink that keeps files."""
        keepers = [(text, sink.keep) for text, sink in self._open.items() if sink.keep]
        with TemporaryDirectory() as folder:
            files = make_files(Path(folder)) if keepers else []
            for text, keep in keepers:
                with self._guarded(text):
                    keep(files)

    def __enter__(self) -> Sinks:
        return self

    def __exit__(self, *_: object) -> None:
        for text, sink in [*self._open.items()]:
            with self._guarded(text):
                sink.close()

    def _record(self) -> None:
        self._recorded |= {text: (sink.place, sink.last) for text, sink in self._open.items()}
        if self._path:
            write_new_file(self._path, json.dumps(self._recorded))

    @contextmanager
    def _guarded(self, text: str) -> Iterator[None]:
        """Turn any error of a sink into one warning, and close that sink."""
        try:
            yield
        except Exception as error:  # trackers have their own exceptions, and none of them may stop the run
            with suppress(Exception):
                self._open.pop(text).close()
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            warnings.warn(f"--log {text} failed ({reason}); the run goes on without it", NoteWarning, stacklevel=2)


def read_rounds(ledger: Ledger, labels: Sequence[str], after: int = 0) -> Iterator[dict[str, float]]:
    """The rounds after one, each as numbers by name: `accuracy`, `weight/CLIENT`, `criterion/DS/CLIENT`, `round`."""
    tested: dict[int, dict[str, object]] = defaultdict(dict)
    for index, client, correct, size in ledger.evaluations(after):
        tested[index][f"local_accuracy/{labels[client]}"] = correct / size if size else None
    left_out = Counter(event.round for event in ledger.events(after=after) if event.kind == "left-out")
    for row in ledger.rounds(after):
        index, weights = row["round"], ledger.weight_columns(row["round"])
        values, columns = tested[index], {"weight": weights.weights, "score": weights.scores}
        columns |= {f"criterion/{plain_name(name)}": column for name, column in weights.criteria.items()}
        for name, column in columns.items():
            values |= {f"{name}/{labels[client]}": v for client, v in zip(weights.ids, column.tolist(), strict=True)}
        for _, client, objective, value in ledger.audits(index):
            kind, end = ("audit", "") if client == SERVER else ("local_audit", f"/{labels[client]}")
            values[f"{kind}/{plain_name(objective)}{end}"] = value
        values |= row | {f"seconds/{stage}": seconds for stage, seconds in row["seconds"].items()}
        values |= {"clients": len(weights.ids), "left_out": left_out[index], "round": values.pop("round")}  # now last
        yield {name: float(v) for name, v in values.items() if isinstance(v, int | float) and math.isfinite(v)}


def client_labels(names: Sequence[str]) -> list[str]:
    """Plain names of the clients; a number follows those that would be equal."""
    plain = [plain_name(name) for name in names]
    counts = Counter(plain)
    return [name if counts[name] == 1 else f"{name}.{client}" for client, name in enumerate(plain)]


def plain_name(text: str) -> str:
    """At most 60 ASCII letters, digits, spaces and `_ . -`, which every tracker accepts."""
    return re.sub(r"[^\w. -]", "_", text, flags=re.ASCII)[:60].strip(" .") or "_"
