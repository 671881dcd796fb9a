"""What a run does right now: a small file in its folder, written at each change of stage, for whoever watches.

Nothing else depends on it: it is not in the ledger, not waited for, and gone when the run has come to its end. A run
that was killed leaves it, with the number of a process that is no more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedmerit.core.state import OnStage
from fedmerit.core.types import ClientId
from fedmerit.errors import RunStopped

NOW = "now.json"
PART = f"{NOW}.part"
STARTS, STOPPED, FAILED = "start", "stopped", "failed"
LARGEST = 1 << 24
"""Bytes of such a file that a reader takes."""


@dataclass(frozen=True, slots=True)
class Now:
    """What a run does: the stage of a round, since when, and who trains in it; `alive` tells whether its process is.

    The stage of a run that ended early is `stopped` or `failed`, and `reason` says why.
    """

    round: int
    stage: str
    since: float
    clients: tuple[ClientId, ...]
    reason: str
    alive: bool


@contextmanager
def telling(folder: Path | None) -> Iterator[OnStage]:
    """Within it, each stage that is told stands in the folder; at the end nothing does, or why it ended early."""
    if folder is None:
        yield lambda index, stage, clients: None
        return
    told = [0]

    def tell(index: int, stage: str, clients: Sequence[ClientId]) -> None:
        told[0] = index
        _write(folder, index, stage, clients)

    tell(0, STARTS, ())
    try:
        yield tell
    except (RunStopped, KeyboardInterrupt) as stop:
        _write(folder, told[0], STOPPED, (), str(stop))
        raise
    except BaseException as error:
        _write(folder, told[0], FAILED, (), f"{type(error).__name__}: {error}"[:1000])
        raise
    for name in (NOW, PART):
        (folder / name).unlink(missing_ok=True)


def read_now(folder: Path) -> Now | None:
    """What a run does; None where it does not tell."""
    path = folder / NOW
    try:
        if path.stat().st_size > LARGEST:
            return None
        told = json.loads(path.read_text(encoding="utf-8"))
        clients = tuple(int(client) for client in told["clients"])
        alive = told["stage"] not in (STOPPED, FAILED) and _is_alive(int(told["pid"]), told["started"])
        return Now(int(told["round"]), str(told["stage"]), float(told["since"]), clients, str(told["reason"]), alive)
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _write(folder: Path, index: int, stage: str, clients: Sequence[ClientId], reason: str = "") -> None:
    """Beside its place, then moved there; not synced, and a full disk is no reason to end a run."""
    told = {"round": index, "stage": stage, "since": time.time(), "clients": [*clients], "reason": reason}
    with suppress(OSError):
        (folder / PART).write_text(json.dumps(told | {"pid": os.getpid(), "started": _started(os.getpid())}))
        (folder / PART).replace(folder / NOW)


def _started(pid: int) -> str:
    """When a process started, by the kernel's count: tells it from a later one of the same number; "" if unknown."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and somebody else's
    except (OSError, OverflowError, ValueError):
        return False
    return pid > 0 and _started(pid) == started
