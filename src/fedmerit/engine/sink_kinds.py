"""The kinds of `--log`: CSV, JSON lines, TensorBoard, MLflow, Weights & Biases; one function opens each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from fedmerit.store.files import write_new_file
from fedmerit.store.strict_json import dump_json

Values: TypeAlias = Mapping[str, float]  # the numbers of a round by name; `round` is the last of them


class Target(NamedTuple):
    """WHERE, the name and the settings of a run, and of a resumed run its place at WHERE and the last round there."""

    where: str
    run: str
    settings: Mapping[str, Any]
    place: str | None
    last: int


@dataclass(slots=True)
class Sink:
    """An open sink: `log` stores a round, `keep` the model and the report of a finished run, if it can."""

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
    # A killed process may have left half a line, or a round that was not recorded and is logged again.
    old = [line for line in old if line.endswith("\n") and int(re.findall(r"\d+", line)[0]) <= last]
    write_new_file(path, header + "".join(old))

    def log(values: Values) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(lines(int(values["round"]), {name: v for name, v in values.items() if name != "round"}))

    return Sink(str(path), last, log)


def open_csv(to: Target) -> Sink:
    """FOLDER/RUN.csv: a line per round and name. Names have no commas and no quotes."""
    return open_file(to, ".csv", "round,name,value\n", lambda i, of: "".join(f"{i},{k},{v!r}\n" for k, v in of.items()))


def open_jsonl(to: Target) -> Sink:
    """FOLDER/RUN.jsonl: an object with the name and the settings of the run, then an object per round."""
    header = f"{dump_json({'run': to.run, 'settings': dict(to.settings)})}\n"
    return open_file(to, ".jsonl", header, lambda i, of: f"{dump_json({'round': i, **of})}\n")


def open_tensorboard(to: Target) -> Sink:
    """LOGDIR/RUN: a scalar per name, in event files of TensorBoard's own writer."""
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

    # From this step on, readers drop what a killed process may have logged.
    add(last + 1, session_log=SessionLog(status=SessionLog.START))
    return Sink(str(folder), last, log, close=writer.close)


def open_mlflow(to: Target) -> Sink:
    """A run of the experiment `fedmerit`, in a database file (created if missing) or on a tracking server."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    uri, artifacts = to.where, None
    if "://" not in uri:
        path = Path(uri).expanduser().absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        uri, artifacts = f"sqlite:///{path}", path.with_suffix(".artifacts").as_uri()
    client, place, last = MlflowClient(tracking_uri=uri), to.place, 0
    if not place:
        found = client.get_experiment_by_name("fedmerit")
        experiment = found.experiment_id if found else client.create_experiment("fedmerit", artifacts)
        place = str(client.create_run(experiment, run_name=to.run).info.run_id)
        client.log_batch(place, params=[Param(k, str(v)[:500]) for k, v in to.settings.items()])  # the servers' limit
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
    """A run of a project. It is offline unless WANDB_MODE says otherwise; `wandb sync` sends it later."""
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
    """A new path in the folder WHERE; a number follows the run's name if another run has that name."""
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
