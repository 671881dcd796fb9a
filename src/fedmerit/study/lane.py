"""A lane: a process that does runs of a study one after the other, tells how far it is, and ends with its study."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from fedmerit.config import Config
from fedmerit.errors import ConfigError, FedmeritError, RunStopped, UserError
from fedmerit.named_recipes import make_recipe
from fedmerit.round import Record
from fedmerit.run import Run, check_task, make_selection, resume, run_config
from fedmerit.study.agreement import find_right, write_right
from fedmerit.tasks.task import make_task

STOP = "stop"


@dataclass(frozen=True, slots=True)
class Check:
    """A job: does the data have what these rows, which share it, ask for?"""

    rows: Mapping[str, Config]


@dataclass(frozen=True, slots=True)
class Go:
    """A job: this run, from wherever it stands to its end; then which test rows its model gets right, if asked for."""

    config: Config
    folder: Path
    right: Path | None


Job: TypeAlias = Check | Go


@dataclass(frozen=True, slots=True)
class Played:
    """An answer: a round is over."""

    round: int
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer: the job is over; why it could not be done, whether that was the user's mistake, or a wish to stop."""

    failed: str = ""
    mistake: bool = False
    stopped: bool = False


Answer: TypeAlias = Played | Ended


def live(connection: Connection) -> None:
    """A lane's life: jobs until the study is gone."""
    jobs: SimpleQueue[Job] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(connection, jobs, stop), daemon=True).start()
    while True:
        connection.send(_do(jobs.get(), connection, stop))


def _listen(connection: Connection, jobs: SimpleQueue[Job], stop: threading.Event) -> None:
    """Take messages while a run goes on; a study that is gone takes its lanes with it: nobody holds its runs."""
    try:
        while True:
            message = connection.recv()
            if message == STOP:
                stop.set()
            else:
                jobs.put(message)
    except (EOFError, OSError):
        os._exit(1)


def _do(job: Job, connection: Connection, stop: threading.Event) -> Ended:
    try:
        if isinstance(job, Check):
            _check(job.rows)
        else:
            _go(job, connection, stop)
    except RunStopped:
        return Ended(stopped=True)
    except FedmeritError as error:
        return Ended(str(error), mistake=isinstance(error, UserError))
    except Exception as error:  # whatever a task of one's own raises is that run's failure, not the study's
        return Ended(f"{type(error).__name__}: {error}")
    return Ended()


def _check(rows: Mapping[str, Config]) -> None:
    """Load the data once and ask it for all."""
    first = next(iter(rows.values()))
    task = make_task(first.task, first.train, first.run.seed)
    for name, config in rows.items():
        try:
            check_task(task, make_recipe(config.recipe), make_selection(config.run), config.run.audit)
        except UserError as error:
            raise ConfigError(f"row {name!r}: {error}") from None


def _go(job: Go, connection: Connection, stop: threading.Event) -> None:
    """Begin a run or go on with it; it stops after a round where the study asks for that."""
    last = job.config.run.rounds

    def tell(record: Record) -> None:
        connection.send(Played(record.index, record.evaluation.accuracy if record.evaluation else None))
        if stop.is_set() and record.index < last:
            raise RunStopped(f"stopped after round {record.index} of {last}")

    run = resume(job.folder, job.config, tell) if job.folder.exists() else run_config(job.config, job.folder, tell)
    run.ledger.close()
    if job.right is not None and not job.right.exists():
        _keep_right(run, job.config, job.right)


def _keep_right(run: Run, config: Config, path: Path) -> None:
    write_right(path, find_right(make_task(config.task, config.train, config.run.seed), run.model))
