"""Sinks: files and experiment trackers that receive every round of a run, chosen by `--log NAME:WHERE`.

Rounds are read from the ledger. A resumed run logs no round twice. A sink that fails warns once, and the run continues.
There is one function per kind of sink: CSV, JSON lines, TensorBoard, MLflow, Weights & Biases.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from fedmerit.config.schema import flatten
from fedmerit.core.state import SERVER
from fedmerit.errors import ConfigError, NoteWarning, UnknownName
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.strict_json import dump_json, load_json

Values: TypeAlias = Mapping[str, float]  # the numbers of a round by name; `round` is the last of them


class Target(NamedTuple):
    """What a sink is opened with: WHERE, name and settings of the run; for a resumed run, its place and last round."""

    where: str
    run: str
    settings: Mapping[str, Any]
    place: str | None
    last: int


@dataclass(slots=True)
class Sink:
    """An open sink: `log` stores a round; `keep`, if supported, stores the model and the report of a finished run."""

    place: str
    last: int
    log: Callable[[Values], None]
    keep: Callable[[Sequence[Path]], None] | None = None
    close: Callable[[], None] = lambda: None


def open_file(to: Target, ending: str, header: str, lines: Callable[[int, Values], str]) -> Sink:
    """Append the lines of each round to FOLDER/RUN.ending; the first number of a line is its round."""
    path = Path(to.place) if to.place else _free_path(to, ending)
    last = to.last if path.exists() else 0
    old = path.read_text(encoding="utf-8").splitlines(keepends=True)[1:] if last else []
    # A killed process may have left half a line, or a round that the ledger does not have and that is logged again.
    old = [line for line in old if line.endswith("\n") and int(re.findall(r"\d+", line)[0]) <= last]
    write_new_file(path, header + "".join(old))

    def log(values: Values) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(lines(int(values["round"]), {name: v for name, v in values.items() if name != "round"}))

    return Sink(str(path), last, log)


def open_csv(to: Target) -> Sink:
    """Write FOLDER/RUN.csv: a line per round and name. Names have no commas and no quotes."""
    return open_file(to, ".csv", "round,name,value\n", lambda i, of: "".join(f"{i},{k},{v!r}\n" for k, v in of.items()))


def open_jsonl(to: Target) -> Sink:
    """Write FOLDER/RUN.jsonl: an object with the name and the settings of the run, then an object per round."""
    header = f"{dump_json({'run': to.run, 'settings': dict(to.settings)})}\n"
    return open_file(to, ".jsonl", header, lambda i, of: f"{dump_json({'round': i, **of})}\n")


def open_tensorboard(to: Target) -> Sink:
    """Write LOGDIR/RUN: a scalar per name, in event files of TensorBoard's own writer."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = Path(to.place) if to.place else _free_path(to)
    last = to.last if folder.exists() else 0
    writer = EventFileWriter(str(folder))

    def add(step: int, **content: Any) -> None:
        writer.add_event(Event(wall_time=time.time(), step=step, **content))
        writer.flush()

    def log(values: Values) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        add(int(values["round"]), summary=Summary(value=scalars))

    # TensorBoard drops earlier events from this step on, which a killed process may have logged.
    add(last + 1, session_log=SessionLog(status=SessionLog.START))
    return Sink(str(folder), last, log, close=writer.close)


def open_mlflow(to: Target) -> Sink:
    """Log a run of the experiment `fedmerit` to a database file (created if missing) or a tracking server."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    uri, artifacts = to.where, None
    if "://" not in uri:
        path = Path(uri).expanduser().absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        uri, artifacts = f"sqlite:///{path}", path.with_suffix(".artifacts").as_uri()
    client, place, last = MlflowClient(tracking_uri=uri), to.place, 0
    if not place:
        existing = client.get_experiment_by_name("fedmerit")
        experiment = existing.experiment_id if existing else client.create_experiment("fedmerit", artifacts)
        place = str(client.create_run(experiment, run_name=to.run).info.run_id)
        client.log_batch(place, params=[Param(k, str(v)[:500]) for k, v in to.settings.items()])  # MLflow's limit
    else:  # `round` is logged last: a round that has it is complete
        last = int(client.get_run(place).data.metrics.get("round", 0))

    def log(values: Values) -> None:
        now, step = int(time.time() * 1000), int(values["round"])
        client.log_batch(place, [Metric(name, value, now, step) for name, value in values.items()])

    def keep(files: Sequence[Path]) -> None:
        for file in files:
            client.log_artifact(place, str(file))
        client.set_terminated(place, "FINISHED")

    return Sink(place, last, log, keep)


def open_wandb(to: Target) -> Sink:
    """Log a run of a project, offline unless WANDB_MODE is set; `wandb sync` uploads it later."""
    import wandb

    place, mode = to.place or uuid4().hex[:8], os.environ.get("WANDB_MODE") or "offline"
    options = {"project": to.where, "name": to.run, "config": dict(to.settings), "mode": mode}
    run = wandb.init(id=place, resume="allow", reinit="create_new", **options)

    def keep(files: Sequence[Path]) -> None:
        artifact = wandb.Artifact(f"run-{place}", type="run")
        for file in files:
            artifact.add_file(str(file))
        run.log_artifact(artifact)

    return Sink(place, to.last, lambda values: run.log(dict(values), step=int(values["round"])), keep, run.finish)


def _free_path(to: Target, ending: str = "") -> Path:
    """Find a new path in the folder WHERE; if another run has the same name, append a number."""
    folder = Path(to.where).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / f"{to.run}{'' if i == 1 else f'-{i}'}{ending}" for i in count(1))
    return next(path for path in paths if not path.exists())


SINKS: dict[str, tuple[Callable[[Target], Sink], str]] = {  # how each is opened, and what WHERE means
    "csv": (open_csv, "a folder for a file per run"),
    "jsonl": (open_jsonl, "a folder for a file per run"),
    "tensorboard": (open_tensorboard, "its --logdir"),
    "mlflow": (open_mlflow, "a database file or the server's URI"),
    "wandb": (open_wandb, "a project; offline unless WANDB_MODE is set"),
}


def check_logs(logs: Sequence[str]) -> None:
    """Raise an error, before a run begins, for an unknown sink, a missing package or a missing WHERE."""
    for text in logs:
        name, _, where = text.partition(":")
        if name not in SINKS:
            raise UnknownName("log", name, SINKS)
        if not where:
            raise ConfigError(f"--log {name} needs a target: {name}:WHERE, where WHERE is {SINKS[name][1]}")
        if name not in ("csv", "jsonl") and find_spec(name) is None:
            raise ConfigError(f"--log {name} needs {name}, which is not installed: pip install 'fedmerit[{name}]'")


def located_logs(logs: Sequence[str]) -> list[str]:
    """Check the sinks, and make their paths absolute for a process in another folder."""
    check_logs(logs)
    pairs = [text.partition(":")[::2] for text in logs]
    return [f"{n}:{w if n == 'wandb' or '://' in w else Path(w).expanduser().absolute()}" for n, w in pairs]


class Sinks:
    """The open sinks of a run; without a folder, the run cannot be resumed."""

    def __init__(self, logs: Sequence[str], ledger: Ledger, folder: Path | None) -> None:
        self._open: dict[str, Sink] = {}
        if not logs:
            return
        self._path = None if folder is None else folder / "logs.json"  # place and last round of each sink
        self._recorded: dict[str, tuple[str | None, int]] = {}
        with suppress(Exception):  # if the file is missing or damaged, the sinks start from the beginning
            recorded = load_json(self._path.read_text(encoding="utf-8"), self._path.name) if self._path else {}
            self._recorded = {text: (str(place), int(last)) for text, (place, last) in recorded.items()}
        self._labels = client_labels(ledger.names())
        run = time.strftime("run-%Y%m%d-%H%M%S") if folder is None else folder.resolve().name
        meta = ledger.meta()
        values = json.loads(meta.get("config") or meta.get("settings") or "{}")
        settings = {key: value for key, value in flatten(values).items() if value is not None}
        for text in dict.fromkeys(logs):
            name, _, where = text.partition(":")
            with self._guarded(text):
                self._open[text] = SINKS[name][0](Target(where, run, settings, *self._recorded.get(text, (None, 0))))
        self._record()

    def log(self, ledger: Ledger) -> None:
        """Log the rounds of the ledger that a sink does not have yet, for every sink."""
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
        """Make the model and the report in a temporary folder, and pass them to every sink that stores files."""
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
        except Exception as error:  # trackers raise exceptions of any type, and none may stop the run
            with suppress(Exception):
                self._open.pop(text).close()
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            warnings.warn(f"--log {text} failed ({reason}); the run continues without it", NoteWarning, stacklevel=2)


def read_rounds(ledger: Ledger, labels: Sequence[str], after: int = 0) -> Iterator[dict[str, float]]:
    """Yield the rounds after round `after` as numbers by name: `accuracy`, `weight/CLIENT`, `criterion/DS/CLIENT`..."""
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
    """Plain names of the clients; equal ones get the client's number as suffix."""
    plain = [plain_name(name) for name in names]
    counts = Counter(plain)
    return [name if counts[name] == 1 else f"{name}.{client}" for client, name in enumerate(plain)]


def plain_name(text: str) -> str:
    """Reduce a text to at most 60 ASCII letters, digits, spaces and `_ . -`, which every tracker accepts."""
    return re.sub(r"[^\w. -]", "_", text, flags=re.ASCII)[:60].strip(" .") or "_"
