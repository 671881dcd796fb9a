"""A worker: a process that does jobs of a study one after the other, reports each round, and ends with the study."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from fedmerit.config.schema import Config, TaskConfig
from fedmerit.core.state import Record
from fedmerit.engine.preflight import check_config
from fedmerit.engine.run import resume, run_config
from fedmerit.errors import ConfigError, FedmeritError, RunStopped, UserError
from fedmerit.fleet.pool import keep_memory
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import BEST
from fedmerit.study.metrics import find_correct, write_correct
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task, make_federation, make_task

STOP = "stop"
"""A message: end the run after its current round."""


@dataclass(frozen=True, slots=True)
class CheckJob:
    """A job: check that the data has what these rows ask for; data that rows share is loaded once."""

    rows: Mapping[str, Config]


@dataclass(frozen=True, slots=True)
class RunJob:
    """A job: start or resume a run and finish it.

    `correct` is the file for the test rows that the final and the best model get right; None where clients share none.
    `draw_seed` is that of a null row, else None. `log` names the sinks that get its rounds.
    """

    config: Config
    folder: Path
    correct: Path | None
    draw_seed: int | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadJob:
    """A job: load the data of a run that will follow; what is wrong with it is the check's to tell."""

    config: Config


Job: TypeAlias = CheckJob | LoadJob | RunJob


@dataclass(frozen=True, slots=True)
class Played:
    """An answer: a round is over. `accuracy` is None where the round was not evaluated."""

    round: int
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer: the job is over.

    `error` says why it failed, "" if it did not; `user_error` whether the user can fix that; `stopped` whether the
    study asked it to stop.
    """

    error: str = ""
    user_error: bool = False
    stopped: bool = False


Answer: TypeAlias = Played | Ended


class TaskLoader:
    """Makes the tasks of runs, and keeps the last federation: the rows of a seed follow each other and share it."""

    def __init__(self) -> None:
        self._data: tuple[TaskConfig, int, Federation] | None = None

    def __call__(self, config: Config) -> Task:
        """The task of a run, with a new learner."""
        return make_task(config, self._federation)

    def _federation(self, config: TaskConfig, seed: int) -> Federation:
        if self._data is None or self._data[:2] != (config, seed):
            self._data = None  # two federations need not fit into memory
            self._data = config, seed, make_federation(config, seed)
        return self._data[2]


def work(connection: Connection) -> None:
    """Do jobs from the connection, and answer each, until the study is gone."""
    keep_memory()
    jobs: SimpleQueue[Job] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(connection, jobs, stop), daemon=True).start()
    load = TaskLoader()
    while True:
        connection.send(_do(jobs.get(), connection, stop, load))


def _listen(connection: Connection, jobs: SimpleQueue[Job], stop: threading.Event) -> None:
    """Receive messages while a run is under way; end this process when the study, which holds its runs, is gone."""
    try:
        while True:
            message = connection.recv()
            if message == STOP:
                stop.set()
            else:
                jobs.put(message)
    except (EOFError, OSError):
        os._exit(1)


def _do(job: Job, connection: Connection, stop: threading.Event, load: TaskLoader) -> Ended:
    try:
        if isinstance(job, CheckJob):
            _check(job.rows, load)
        elif isinstance(job, LoadJob):
            load(job.config)
        else:
            _run(job, connection, stop, load)
    except RunStopped:
        return Ended(stopped=True)
    except FedmeritError as error:
        return Ended(str(error), user_error=isinstance(error, UserError))
    except Exception as error:  # whatever a user's own task raises fails that run, not the study
        return Ended(f"{type(error).__name__}: {error}")
    return Ended()


def _check(rows: Mapping[str, Config], load: TaskLoader) -> None:
    """Check every row against its data, which most rows share."""
    for name, config in rows.items():
        try:
            check_config(config, load(config))
        except UserError as error:
            raise ConfigError(f"row {name!r}: {error}") from None


def _run(job: RunJob, connection: Connection, stop: threading.Event, load: TaskLoader) -> None:
    """Start or resume a run; it ends early, after a round, where the study asks it to stop."""
    config, last_round = job.config, job.config.run.rounds

    def report(record: Record) -> None:
        connection.send(Played(record.index, record.evaluation.accuracy if record.evaluation else None))
        if stop.is_set() and record.index < last_round:
            raise RunStopped(f"stopped after round {record.index} of {last_round}")

    begun = job.folder.exists()
    if begun:
        run = resume(job.folder, config, report, load, job.log)
    else:
        run = run_config(config, job.folder, report, load, job.log, draw_seed=job.draw_seed)
    run.ledger.close()
    if job.correct is not None and not job.correct.exists():
        best = read_model(job.folder / BEST)
        write_correct(job.correct, find_correct(load(config), run.model, None if best is None else best[0]))
