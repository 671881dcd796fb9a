"""Lanes as a study sees them: runs go out to processes, answers come back, and who dies is noticed."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Self

from fedmerit.config.schema import Config
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.fleet.pool import ensure_forkserver
from fedmerit.study.lane import STOP, Answer, Check, Ended, Go, Job, live
from fedmerit.study.layout import Member
from fedmerit.tasks.registry import find_task

PATIENCE = 0.2  # seconds; how soon a Ctrl-C is noticed


@dataclass(frozen=True, slots=True)
class Step:
    """Something happened to a run of the study: it played a round, or it ended."""

    member: Member
    answer: Answer


@dataclass(slots=True)
class _Lane:
    process: ForkServerProcess
    connection: Connection
    member: Member | None = None
    workers: int = 0

    def send(self, message: Job | str) -> None:
        with suppress(OSError):  # a lane that died is noticed when its answer is awaited
            self.connection.send(message)

    def receive(self) -> Answer:
        """The next answer; a lane that died has failed its run."""
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Ended(f"its process {how}; what it did is kept, and goes on when the study is called again")
        return answer

    def end(self) -> None:
        """At once: a run can be killed at any moment, and resumed."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class Lanes:
    """Processes that do one run at a time each; those that are idle are used again. Use as a context manager."""

    def __init__(self, config: Config) -> None:
        """What runs of this configuration import is loaded once, in the process that all lanes are forked from."""
        self._context = multiprocessing.get_context("forkserver")
        learner = ["fedmerit.learn.sgd"] if find_task(config.task.data).learner is None else []
        self._context.set_forkserver_preload(["fedmerit.study.lane", *learner])
        self._lanes: list[_Lane] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for lane in self._lanes:
            lane.end()

    @property
    def load(self) -> int:
        """Workers that are at work."""
        return sum(lane.workers for lane in self._lanes)

    def give(self, member: Member, config: Config, workers: int) -> None:
        """Start a run in a lane that is idle."""
        lane = self._idle()
        lane.member, lane.workers = member, workers
        lane.send(Go(config, member.folder, member.right if member.one_model else None))

    def check(self, rows: dict[str, Config]) -> None:
        """A row that the data cannot serve is refused before the first run starts."""
        lane = self._idle()
        lane.send(Check(rows))
        answer = lane.receive()
        if isinstance(answer, Ended) and answer.failed:
            raise (ConfigError if answer.mistake else RunFailed)(answer.failed)

    def steps(self) -> list[Step]:
        """What happened since; waits a moment where nothing did."""
        busy = {lane.connection: lane for lane in self._lanes if lane.member}
        heard = [busy[one] for one in wait(list(busy), PATIENCE) if isinstance(one, Connection)]
        return [self._step(lane) for lane in heard]

    def stop(self) -> None:
        """Ask all runs to end after their round."""
        for lane in self._lanes:
            lane.send(STOP)

    def _step(self, lane: _Lane) -> Step:
        member, answer = lane.member, lane.receive()
        assert member is not None  # only lanes with a run are listened to
        if isinstance(answer, Ended):
            lane.member, lane.workers = None, 0
            if not lane.process.is_alive():
                self._lanes.remove(lane)
        return Step(member, answer)

    def _idle(self) -> _Lane:
        """A lane without a run, new where there is none."""
        for lane in self._lanes:
            if lane.member is None:
                return lane
        ensure_forkserver()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=live, args=(theirs,))  # no daemon: a run may start workers
        process.start()
        theirs.close()
        self._lanes.append(_Lane(process, ours))
        return self._lanes[-1]
