"""Worker processes of a study: execute its runs in parallel, and report every round.

`Workers` and `run_all` are the study's side. `work` is the main loop of a worker: it executes one job after the other,
caches the data of a seed for the rows that share it, and ends with the study.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from queue import SimpleQueue
from typing import Self, TypeAlias

from fedmerit.config.schema import Config, TaskConfig
from fedmerit.core.state import Record
from fedmerit.core.system import quarter_of_ram
from fedmerit.engine.loop import Stopping
from fedmerit.engine.measure import default_measure
from fedmerit.engine.preflight import check_config
from fedmerit.engine.run import GIB, resume, run_config
from fedmerit.errors import ConfigError, FedmeritError, NoteWarning, RunFailed, RunStopped, UserError
from fedmerit.fleet.pool import begin_preload, ensure_forkserver, keep_memory
from fedmerit.study.attacks import measure_attack, write_measured
from fedmerit.study.study_folder import Member
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task, find_task, make_federation, make_task

PRELOAD = ("fedmerit.study.workers", "fedmerit.learn.sgd")
"""Modules that most runs import, loaded once in the process that all workers are forked from."""
PATIENCE = 0.2
"""Seconds to wait for answers, which is also the delay of Ctrl-C."""
STOP = "stop"
"""A message to a worker: end the run after its current round."""


@dataclass(frozen=True, slots=True)
class Played:
    """A worker's message that a round is finished; `value` is None if the round was not evaluated."""

    round: int
    measure: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker's message that its job is finished.

    error       why it failed; "" if it did not
    user_error  whether the user can fix the error
    stopped     whether the study stopped it
    found       by a check: the measure that fits the labels, then the gravest suspicions about the data
    """

    error: str = ""
    user_error: bool = False
    stopped: bool = False
    found: tuple[str, ...] = ()


Answer: TypeAlias = Played | Ended


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a run of the study: a finished round, or the end of the run."""

    member: Member
    answer: Answer


OnStep: TypeAlias = Callable[[Step], None]


@dataclass(slots=True)
class _Worker:
    """A worker process on the study's side: its connection, its run and the number of cores of that run."""

    process: ForkServerProcess
    connection: Connection
    member: Member | None = None
    cores: int = 0

    def send(self, message: Job | str) -> None:
        with suppress(OSError):  # `receive` notices a worker that died
            self.connection.send(message)

    def receive(self) -> Answer:
        """Receive the next answer; if the process has died, its run has failed."""
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Ended(f"its process {how}; the same command resumes it")
        return answer

    def end(self) -> None:
        """Kill the process; a run can be killed at any time and resumed."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class Workers:
    """A pool of worker processes with one run each; idle ones are reused. Use as a context manager."""

    def __init__(self, config: Config) -> None:
        """Start to load the modules of this configuration's runs, in the process that all workers are forked from."""
        begin_preload(PRELOAD if find_task(config.task.data).learner is None else PRELOAD[:1])
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def busy_cores(self) -> int:
        """The number of cores of the current runs."""
        return sum(worker.cores for worker in self._workers)

    def start(self, member: Member, config: Config, cores: int, measure: str = "") -> None:
        """Start or resume a run in an idle worker; `measure` is what the study judges by."""
        worker = self._idle()
        worker.member, worker.cores = member, cores
        worker.send(partial(_run, member, config, measure))

    def check(self, rows: Mapping[str, Config]) -> str:
        """Raise an error if a row does not fit its data, before a run starts; return the first row's measure.

        Suspicions about the data are issued as `NoteWarning`.
        """
        worker = self._idle()
        worker.send(partial(_check, rows))
        answer = worker.receive()
        if isinstance(answer, Ended) and answer.error:
            raise (ConfigError if answer.user_error else RunFailed)(answer.error)
        measure, *suspicions = answer.found if isinstance(answer, Ended) else ("",)
        for line in suspicions:
            warnings.warn(line, NoteWarning, stacklevel=3)  # the caller of `compare`
        return measure

    def steps(self) -> list[Step]:
        """The events since the last call; waits up to PATIENCE seconds for one."""
        busy = {worker.connection: worker for worker in self._workers if worker.member}
        ready = [busy[connection] for connection in wait(list(busy), PATIENCE) if isinstance(connection, Connection)]
        return [self._step(worker) for worker in ready]

    def stop(self) -> None:
        """Stop all runs after their current round."""
        for worker in self._workers:
            worker.send(STOP)

    def _step(self, worker: _Worker) -> Step:
        member, answer = worker.member, worker.receive()
        assert member is not None  # `steps` reads only from workers with a run
        if isinstance(answer, Ended):
            worker.member, worker.cores = None, 0
            if not worker.process.is_alive():
                self._workers.remove(worker)
        return Step(member, answer)

    def _idle(self) -> _Worker:
        """Return an idle worker; start a new one if all are busy."""
        for worker in self._workers:
            if worker.member is None:
                return worker
        ensure_forkserver()
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs,))  # not a daemon: a run may start processes itself
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]


def run_all(
    workers: Workers,
    members: Sequence[Member],
    jobs: int,
    on_step: OnStep | None,
    measure: str = "",
) -> dict[str, str]:
    """Execute all runs on at most `jobs` cores; return the reason of each failed run.

    All runs are judged by `measure`: rows whose labels attackers flip could have another default.

    After Ctrl-C, wait until every current run has finished its round, then raise `RunStopped`.
    """
    cores = cores_per_run(len(members), jobs, members[0].config.run.workers)
    waiting, ended = deque(zip(members, cores, strict=True)), dict[str, Ended]()
    with Stopping() as stopping:
        while waiting or workers.busy_cores:
            if stopping.asked:
                waiting.clear()
                workers.stop()
            while waiting and workers.busy_cores + waiting[0][1] <= jobs:
                member, number = waiting.popleft()
                workers.start(member, _with_cores(member.config, number, jobs), number, measure)
            for step in workers.steps():
                if isinstance(step.answer, Ended):
                    ended[str(step.member)] = step.answer
                if on_step:
                    on_step(step)
    done = sum(not answer.stopped for answer in ended.values())
    if done < len(members):
        raise RunStopped(f"stopped with {len(members) - done} of {len(members)} runs unfinished")
    return {member: answer.error for member, answer in ended.items() if answer.error}


def cores_per_run(runs: int, jobs: int, most: int | None = None) -> list[int]:
    """The number of cores of each run: one, but the last `runs % jobs` runs share all cores, which would else be idle.

    `most` is `run.workers`, a limit for each run.
    """
    rest = runs % jobs
    return [1] * (runs - rest) + [min(jobs // rest, most or jobs) for _ in range(rest)]


def _with_cores(config: Config, cores: int, jobs: int) -> Config:
    """Set the workers of a run to its cores, and its memory for updates to its share of the study's memory."""
    memory = (config.run.memory or quarter_of_ram() / GIB) * cores / jobs
    return config.model_copy(update={"run": config.run.model_copy(update={"workers": cores, "memory": memory})})


@dataclass(slots=True)
class JobContext:
    """What a worker's jobs share: the connection to the study, the stop signal, and the last loaded data."""

    connection: Connection
    stop: threading.Event = field(default_factory=threading.Event)
    data: tuple[TaskConfig, int, Federation] | None = None

    def load(self, config: Config) -> Task:
        """Make the task of a run, with a new learner; consecutive runs with the same data share the federation."""
        return make_task(config, self._federation)

    def _federation(self, config: TaskConfig, seed: int) -> Federation:
        if self.data is None or self.data[:2] != (config, seed):
            self.data = None  # free the old federation first, because two may not fit into memory
            self.data = config, seed, make_federation(config, seed)
        return self.data[2]


Job: TypeAlias = Callable[[JobContext], tuple[str, ...] | None]


def work(connection: Connection) -> None:
    """Execute jobs from the connection and answer each, until the study ends."""
    keep_memory()
    jobs: SimpleQueue[Job] = SimpleQueue()
    context = JobContext(connection)
    threading.Thread(target=_listen, args=(context, jobs), daemon=True).start()
    while True:
        connection.send(_do(jobs.get(), context))


def _listen(context: JobContext, jobs: SimpleQueue[Job]) -> None:
    """Receive messages during a run; end this process when the study ends."""
    try:
        while True:
            message = context.connection.recv()
            if message == STOP:
                context.stop.set()
            else:
                jobs.put(message)
    except (EOFError, OSError):
        os._exit(1)


def _do(job: Job, context: JobContext) -> Ended:
    try:
        found = job(context)
    except RunStopped:
        return Ended(stopped=True)
    except FedmeritError as error:
        return Ended(str(error), user_error=isinstance(error, UserError))
    except Exception as error:  # a user's task may raise anything, which fails its run and not the study
        return Ended(f"{type(error).__name__}: {error}")
    return Ended(found=found or ("",))


def _check(rows: Mapping[str, Config], context: JobContext) -> tuple[str, ...]:
    """Check that every row fits its data; return the first row's measure and the suspicions about its data."""
    found: tuple[str, ...] = ()
    for name, config in rows.items():
        try:
            task = context.load(config)
            check_config(config, task)
        except UserError as error:
            raise ConfigError(f"row {name!r}: {error}") from None
        data = task.federation
        measure = config.run.measure or default_measure(task.learner, data)
        found = found or (measure, *(data.data.brief() if data.data else ()))
    return found


def _run(member: Member, config: Config, measure: str, context: JobContext) -> None:
    """Start or resume a run, and stop it after a round if the study is stopped.

    At the end, measure the success of its attackers, if clients share one model.
    """

    def report(record: Record) -> None:
        context.connection.send(Played(record.index, record.measure, record.value))
        if context.stop.is_set() and record.index < config.run.rounds:
            raise RunStopped(f"stopped after round {record.index} of {config.run.rounds}")

    if member.begun:
        run = resume(member.folder, config, report, context.load)
    else:
        run = run_config(config, member.folder, report, context.load, draw_seed=member.draw_seed, measure=measure)
    run.ledger.close()
    if not member.complete:
        write_measured(member.success, measure_attack(context.load(config), run.model))
