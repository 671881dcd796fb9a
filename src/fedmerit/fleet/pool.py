"""A pool of worker processes: one job at a time each, the dead replaced and their jobs done again."""

from __future__ import annotations

import ctypes
import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any, TypeAlias

from fedmerit.errors import RunFailed

OURS = (signal.SIGINT, signal.SIGTERM)  # a request to stop is the pool's affair: workers are started deaf to it
TRIES = 3  # how often a job may take its worker down before it is given up

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 32 << 20  # bytes; the most that glibc takes for the second

Job: TypeAlias = tuple[Any, ...]
Work: TypeAlias = Callable[..., Any]
"""What a worker can do: called with a job's parts; sent to it when it starts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that could not be done, and why."""

    reason: str


class Here:
    """The pool without processes: every job at once, in this one."""

    def equip(self, work: Work) -> None:
        """Do jobs with this from now on."""
        self._work = work

    def map(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """(job, result or Failed), in order."""
        return ((job, _attempt(self._work, job)) for job in jobs)

    def close(self) -> None:
        """Nothing to end."""


class Pool:
    """Workers that stay for the whole run."""

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        """`preload` names modules that the process all workers are forked from imports once."""
        self._number = workers
        self._workers: list[tuple[ForkServerProcess, Connection]] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))

    def equip(self, work: Work) -> None:
        """Do jobs with this from now on; starts the workers the first time."""
        self._work = work
        if not self._workers:
            self._workers = [self._start() for _ in range(self._number)]
            return
        for place in range(self._number):
            self._send(place, work)

    def map(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Do the jobs in the order given, as workers become free; yields (job, result or Failed) as they end."""
        waiting = deque((job, 1) for job in jobs)
        busy: dict[int, tuple[Job, int]] = {}
        while waiting or busy:
            for place in range(self._number):
                if waiting and place not in busy:
                    busy[place] = waiting.popleft()
                    self._send(place, busy[place][0])
            for place in self._ready(busy):
                job, tries = busy.pop(place)
                result = self._receive(place)
                if result is not None:
                    yield job, result[0]
                elif tries < TRIES:
                    waiting.appendleft((job, tries + 1))
                else:
                    yield job, Failed(f"its worker process died {TRIES} times")

    def close(self) -> None:
        """End the workers; they also end by themselves when this process is gone."""
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []

    def _start(self) -> tuple[ForkServerProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._work), daemon=True)
        ensure_forkserver()
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RunFailed(
                f"the task cannot be sent to worker processes: {error}; define its parts at the top level of a "
                "module, or use one worker"
            ) from error
        theirs.close()
        return process, ours

    def _send(self, place: int, message: Any) -> None:
        with suppress(OSError):  # a dead worker is seen, and replaced, when its answer is awaited
            self._workers[place][1].send(message)

    def _ready(self, busy: Iterable[int]) -> list[int]:
        places = {self._workers[place][1]: place for place in busy}
        return [places[connection] for connection in wait(list(places)) if isinstance(connection, Connection)]

    def _receive(self, place: int) -> tuple[Any] | None:
        """The result in a 1-tuple, or None where the worker died; it is replaced."""
        process, connection = self._workers[place]
        try:
            return (connection.recv(),)
        except (EOFError, OSError):
            connection.close()
            process.join()
            self._workers[place] = self._start()
            return None


def ensure_forkserver() -> None:
    """Start the process that workers are forked from, if it is not there, deaf to our signals: they inherit that."""
    resource_tracker.ensure_running()  # first, since it unblocks them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(connection: Connection, work: Work) -> None:
    """A worker's life: do jobs until the pool is gone."""
    _keep_memory()
    with suppress(EOFError, OSError):
        while True:
            message = connection.recv()
            if isinstance(message, tuple):
                connection.send(_attempt(work, message))
            else:
                work = message


def _keep_memory() -> None:
    """Tell glibc, where it is there, to keep what is freed: else each step of a convolution meets new pages again."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT)


def _attempt(work: Work, job: Job) -> Any:
    try:
        return work(*job)
    except Exception as error:  # whatever a client's learner raises is that client's failure, not the run's
        return Failed(f"{type(error).__name__}: {error}")
