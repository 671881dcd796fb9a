"""A pool of worker processes: one job each at a time; a worker that dies is replaced and its job repeated."""

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

OURS = (signal.SIGINT, signal.SIGTERM)  # the pool handles requests to stop; workers start with both blocked
TRIES = 3  # attempts of a job that kills its worker
UNGUARDED = (
    "worker processes import the script that started them, and this script starts a run when it is imported; move the "
    'run below `if __name__ == "__main__":`, or set workers to 1'
)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 32 << 20  # bytes; the largest value that glibc accepts for M_MMAP_THRESHOLD

Job: TypeAlias = tuple[Any, ...]
Work: TypeAlias = Callable[..., Any]
"""A worker's function: called with the parts of a job; sent to the worker when it starts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that failed, and the reason."""

    reason: str


class Ready:
    """A worker's first message, before its first job."""


class Here:
    """The pool without processes: runs every job in this process."""

    def equip(self, work: Work) -> None:
        """Run jobs with this function from now on."""
        self._work = work

    def map(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Yield (job, result or Failed), in order."""
        return ((job, _attempt(self._work, job)) for job in jobs)

    def close(self) -> None:
        """Do nothing: there is no process to end."""


class Pool:
    """Worker processes that stay for the whole run."""

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        """`preload` names modules that the fork server imports once for all workers."""
        self._number = workers
        self._workers: list[tuple[ForkServerProcess, Connection]] = []
        self._starting: set[Connection] = set()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))

    def equip(self, work: Work) -> None:
        """Run jobs with this function from now on; the first call starts the workers."""
        self._work = work
        if not self._workers:
            self._workers = [self._start(place) for place in range(self._number)]
            return
        for place in range(self._number):
            self._send(place, work)

    def map(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Run the jobs in order as workers become free; yield (job, result or Failed) as they finish."""
        waiting = deque((job, 1) for job in jobs)
        busy: dict[int, tuple[Job, int]] = {}
        while waiting or busy:
            for place in range(self._number):
                if waiting and place not in busy:
                    busy[place] = waiting.popleft()
                    self._send(place, busy[place][0])
            for place in self._ready(busy):
                result = self._receive(place)
                if result is not None and isinstance(result[0], Ready):
                    self._starting.discard(self._workers[place][1])
                    continue
                job, tries = busy.pop(place)
                if result is not None:
                    yield job, result[0]
                elif tries < TRIES:
                    waiting.appendleft((job, tries + 1))
                else:
                    yield job, Failed(f"its worker process died {TRIES} times")

    def close(self) -> None:
        """End the workers; they also end when this process disappears."""
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers = []

    def _start(self, place: int) -> tuple[ForkServerProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._work), daemon=True)
        ensure_forkserver()
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RunFailed(
                f"the task cannot be sent to worker processes ({error}); define its parts at the top level of a "
                "module, or set workers to 1"
            ) from error
        theirs.close()
        self._starting.add(ours)
        return process, ours

    def _send(self, place: int, message: Any) -> None:
        with suppress(OSError):  # a dead worker is detected, and replaced, when its answer is read
            self._workers[place][1].send(message)

    def _ready(self, busy: Iterable[int]) -> list[int]:
        """Return the busy workers that have answered or died, once there is one."""
        places = {self._workers[place][1]: place for place in busy}
        return [places[connection] for connection in wait(list(places)) if isinstance(connection, Connection)]

    def _receive(self, place: int) -> tuple[Any] | None:
        """Return the result in a 1-tuple, or None if the worker died; it is replaced."""
        process, connection = self._workers[place]
        try:
            return (connection.recv(),)
        except (EOFError, OSError):
            process.join()
            if connection in self._starting and process.exitcode == 1:  # an import error, as in every worker
                raise RunFailed(UNGUARDED) from None
            self._starting.discard(connection)
            connection.close()
            self._workers[place] = self._start(place)
            return None


def refuse_while_imported() -> None:
    """Raise in a script that a worker process imports, before it starts a second run there."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RunFailed(UNGUARDED)


def begin_preload(modules: Sequence[str]) -> None:
    """Let the fork server import these modules while this process continues."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    ensure_forkserver()


def ensure_forkserver() -> None:
    """Start the fork server, unless it runs, with our signals blocked: workers inherit that."""
    resource_tracker.ensure_running()  # before the block, because it unblocks the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(connection: Connection, work: Work) -> None:
    """Run jobs until the pool is gone: the main loop of a worker."""
    keep_memory()
    with suppress(EOFError, OSError):
        connection.send(Ready())
        while True:
            message = connection.recv()
            if isinstance(message, tuple):
                connection.send(_attempt(work, message))
            else:
                work = message


def keep_memory() -> None:
    """Let glibc keep freed memory; otherwise each step has to fault in new pages.

    Only for our training processes. A client of an LSTM in Shakespeare's shape takes 205 ms instead of 250 (CPU, AMD
    EPYC Zen 4 with AVX2 only, a busy machine).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT)


def _attempt(work: Work, job: Job) -> Any:
    try:
        return work(*job)
    except Exception as error:  # whatever a client's learner raises fails that client, not the run
        return Failed(f"{type(error).__name__}: {error}")
