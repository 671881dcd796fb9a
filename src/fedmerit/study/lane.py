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

from fedmerit.config.recipes import make_recipe
from fedmerit.config.schema import Config, TaskConfig
from fedmerit.core.round import Record
from fedmerit.engine.run import check_task, make_selection, resume, run_config
from fedmerit.errors import ConfigError, FedmeritError, RunStopped, UserError
from fedmerit.study.agreement import find_right, write_right
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task, make_federation, make_learner

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


class Loader:
    """Tasks whose data is loaded once for the runs that share it: the rows of a seed come one after the other."""

    def __init__(self) -> None:
        self._data: tuple[TaskConfig, int, Federation] | None = None

    def __call__(self, config: Config) -> Task:
        """The task of a run, its learner new."""
        learner, seed = make_learner(config.task, config.train), config.run.seed
        if self._data is None or self._data[:2] != (config.task, seed):
            self._data = None  # two federations need not fit into memory
            self._data = config.task, seed, make_federation(config.task, seed)
        return Task(self._data[2], learner)


def live(connection: Connection) -> None:
    """A lane's life: jobs until the study is gone."""
    jobs: SimpleQueue[Job] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(connection, jobs, stop), daemon=True).start()
    load = Loader()
    while True:
        connection.send(_do(jobs.get(), connection, stop, load))


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


def _do(job: Job, connection: Connection, stop: threading.Event, load: Loader) -> Ended:
    try:
        if isinstance(job, Check):
            _check(job.rows, load)
        else:
            _go(job, connection, stop, load)
    except RunStopped:
        return Ended(stopped=True)
    except FedmeritError as error:
        return Ended(str(error), mistake=isinstance(error, UserError))
    except Exception as error:  # whatever a task of one's own raises is that run's failure, not the study's
        return Ended(f"{type(error).__name__}: {error}")
    return Ended()


def _check(rows: Mapping[str, Config], load: Loader) -> None:
    """Load the data once and ask it for all."""
    task = load(next(iter(rows.values())))
    for name, config in rows.items():
        try:
            check_task(task, make_recipe(config.recipe), make_selection(config.run), config.run.audit)
        except UserError as error:
            raise ConfigError(f"row {name!r}: {error}") from None


def _go(job: Go, connection: Connection, stop: threading.Event, load: Loader) -> None:
    """Begin a run or go on with it; it stops after a round where the study asks for that."""
    last = job.config.run.rounds

    def tell(record: Record) -> None:
        connection.send(Played(record.index, record.evaluation.accuracy if record.evaluation else None))
        if stop.is_set() and record.index < last:
            raise RunStopped(f"stopped after round {record.index} of {last}")

    begun, config = job.folder.exists(), job.config
    run = resume(job.folder, config, tell, load) if begun else run_config(config, job.folder, tell, load)
    run.ledger.close()
    if job.right is not None and not job.right.exists():
        write_right(job.right, find_right(load(config), run.model))
