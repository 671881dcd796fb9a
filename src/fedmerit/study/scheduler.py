"""Scheduler: gives a study's runs to worker processes, as many at once as cores allow, and collects their answers."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from time import monotonic
from typing import Self, TypeAlias

from fedmerit.config.schema import Config
from fedmerit.core.system import quarter_of_ram
from fedmerit.engine.loop import Stopping
from fedmerit.engine.run import GIB
from fedmerit.errors import ConfigError, RunFailed, RunStopped
from fedmerit.fleet.pool import begin_preload, ensure_forkserver
from fedmerit.study.study_folder import Member
from fedmerit.study.worker import STOP, Answer, CheckJob, Ended, Job, LoadJob, RunJob, work
from fedmerit.tasks.registry import find_task

PRELOAD = ("fedmerit.study.worker", "fedmerit.learn.sgd")
"""What runs of most tasks import, loaded once in the process that all workers are forked from."""
SHORT = 10.0
"""Seconds of a run up to which several cores for it do not pay: its own workers would have to start first."""
PATIENCE = 0.2
"""Seconds to wait for answers; Ctrl-C is noticed that soon."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something happened to a run of the study: it played a round, or it ended."""

    member: Member
    answer: Answer


OnStep: TypeAlias = Callable[[Step], None]


@dataclass(slots=True)
class _Worker:
    """A worker process as the study sees it, with the run that it does and the cores of that run."""

    process: ForkServerProcess
    connection: Connection
    member: Member | None = None
    cores: int = 0

    def send(self, message: Job | str) -> None:
        with suppress(OSError):  # `receive` notices a worker that died
            self.connection.send(message)

    def receive(self) -> Answer:
        """The next answer; a worker that died has failed its run."""
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Ended(f"its process {how}; its rounds are kept, and the same call resumes it")
        return answer

    def end(self) -> None:
        """End at once: a run can be killed at any moment, and resumed."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class Workers:
    """Worker processes that do one run at a time each; idle ones are used again. Use as a context manager."""

    def __init__(self, config: Config) -> None:
        """What runs of this configuration import is loaded once, in the process that all workers are forked from."""
        self._context = multiprocessing.get_context("forkserver")
        begin_preload(PRELOAD if find_task(config.task.data).learner is None else PRELOAD[:1])
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def busy_cores(self) -> int:
        """Cores of the runs that are under way."""
        return sum(worker.cores for worker in self._workers)

    def start(self, member: Member, config: Config, cores: int, log: Sequence[str] = ()) -> None:
        """Start or resume a run in an idle worker."""
        worker = self._idle()
        worker.member, worker.cores = member, cores
        correct = member.correct if member.has_common_model else None
        worker.send(RunJob(config, member.folder, correct, member.draw_seed, tuple(log)))

    def check(self, rows: Mapping[str, Config], ahead: Sequence[Config] = ()) -> None:
        """Refuse a row that the data cannot serve, before the first run starts; meanwhile other workers load theirs.

        `ahead` are the runs that come first, one for each worker that is to be busy then.
        """
        worker, *others = [self._new() for _ in range(max(len(ahead), 1))]
        worker.send(CheckJob(rows))
        for other, config in zip(others, ahead[1:], strict=True):
            other.send(LoadJob(config))
        answer = worker.receive()
        for other in others:
            other.receive()
            if not other.process.is_alive():
                self._workers.remove(other)
        if isinstance(answer, Ended) and answer.error:
            raise (ConfigError if answer.user_error else RunFailed)(answer.error)

    def steps(self) -> list[Step]:
        """What happened since the last call; waits a moment if nothing did."""
        busy = {worker.connection: worker for worker in self._workers if worker.member}
        ready = [busy[connection] for connection in wait(list(busy), PATIENCE) if isinstance(connection, Connection)]
        return [self._step(worker) for worker in ready]

    def stop(self) -> None:
        """Ask all runs to end after their round."""
        for worker in self._workers:
            worker.send(STOP)

    def _step(self, worker: _Worker) -> Step:
        member, answer = worker.member, worker.receive()
        assert member is not None  # `steps` listens only to workers with a run
        if isinstance(answer, Ended):
            worker.member, worker.cores = None, 0
            if not worker.process.is_alive():
                self._workers.remove(worker)
        return Step(member, answer)

    def _idle(self) -> _Worker:
        """A worker without a run; a new one if all are busy."""
        for worker in self._workers:
            if worker.member is None:
                return worker
        return self._new()

    def _new(self) -> _Worker:
        ensure_forkserver()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs,))  # not a daemon: a run may start processes itself
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]


def run_all(
    workers: Workers, members: Sequence[Member], jobs: int, on_step: OnStep | None, log: Sequence[str] = ()
) -> dict[str, str]:
    """Finish all runs, at most `jobs` cores at once, logged to these sinks; the reasons of those that failed.

    Raises `RunStopped` after Ctrl-C, when every run under way has ended its round.
    """
    cores = cores_per_run(len(members), jobs, members[0].config.run.workers)
    waiting, ended = deque(zip(members, cores, strict=True)), dict[str, Ended]()
    begun, took = dict[str, float](), list[float]()
    with Stopping() as stopping:
        while waiting or workers.busy_cores:
            if stopping.asked:
                waiting.clear()
                workers.stop()
            while waiting:
                number = 1 if took and max(took) < SHORT else waiting[0][1]
                if workers.busy_cores + number > jobs:
                    break
                member, _ = waiting.popleft()
                begun[str(member)] = monotonic()
                workers.start(member, _with_cores(member.config, number, jobs), number, log)
            for step in workers.steps():
                if isinstance(step.answer, Ended):
                    ended[str(step.member)] = step.answer
                    took.append(monotonic() - begun[str(step.member)])
                if on_step:
                    on_step(step)
    done = sum(not answer.stopped for answer in ended.values())
    if done < len(members):
        raise RunStopped(f"stopped with {len(members) - done} of {len(members)} runs to go")
    return {member: answer.error for member, answer in ended.items() if answer.error}


def cores_per_run(runs: int, jobs: int, most: int | None = None) -> list[int]:
    """Cores of each run, in order: one, but the last `runs % jobs`, which would leave cores idle, share all of them.

    `most` is the user's `run.workers`: more do not pay for one run.
    """
    rest = runs % jobs
    return [1] * (runs - rest) + [min(jobs // rest, most or jobs) for _ in range(rest)]


def _with_cores(config: Config, cores: int, jobs: int) -> Config:
    """The configuration with a worker per core, and the run's part of the study's memory for updates."""
    memory = (config.run.memory or quarter_of_ram() / GIB) * cores / jobs
    return config.model_copy(update={"run": config.run.model_copy(update={"workers": cores, "memory": memory})})
