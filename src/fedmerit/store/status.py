"""The status file of a run: `status.json` in its folder, rewritten at each change of stage, for programs that watch.

Nothing else depends on it: it is not part of the ledger, no writer waits for it, and it is removed when the run ends
normally. A killed run leaves it behind, with the id of a process that is gone.
"""

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

STATUS = "status.json"
PART = f"{STATUS}.part"
STARTS, STOPPED, FAILED = "start", "stopped", "failed"
MAX_BYTES = 1 << 24
"""A larger status file is ignored."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a run does: the stage of a round, since when, and the clients that train; `alive`: its process exists.

    The stage of a run that ended early is `stopped` or `failed`, and `reason` says why.
    """

    round: int
    stage: str
    since: float
    clients: tuple[ClientId, ...]
    reason: str
    alive: bool


@contextmanager
def status_file(folder: Path | None) -> Iterator[OnStage]:
    """Yield a function that writes each stage to the folder's status file.

    The file is removed at a normal end. After an early end it states the reason. Without a folder nothing is written.
    """
    if folder is None:
        yield lambda index, stage, clients: None
        return
    last_round = 0

    def write(index: int, stage: str, clients: Sequence[ClientId], reason: str = "") -> None:
        """Write to a temporary name, then rename; not synced, and a full disk is no reason to end a run."""
        nonlocal last_round
        last_round = index
        values = {"round": index, "stage": stage, "since": time.time(), "clients": [*clients], "reason": reason}
        with suppress(OSError):
            (folder / PART).write_text(json.dumps(values | {"pid": os.getpid(), "started": _started(os.getpid())}))
            (folder / PART).replace(folder / STATUS)

    write(0, STARTS, ())
    try:
        yield write
    except (RunStopped, KeyboardInterrupt) as stop:
        write(last_round, STOPPED, (), str(stop))
        raise
    except BaseException as error:
        write(last_round, FAILED, (), f"{type(error).__name__}: {error}"[:1000])
        raise
    for name in (STATUS, PART):
        (folder / name).unlink(missing_ok=True)


def read_status(folder: Path) -> Status | None:
    """The status of a run; None where the folder has no readable status file."""
    path = folder / STATUS
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        values = json.loads(path.read_text(encoding="utf-8"))
        clients, stage = tuple(int(client) for client in values["clients"]), str(values["stage"])
        alive = stage not in (STOPPED, FAILED) and _is_alive(int(values["pid"]), values["started"])
        return Status(int(values["round"]), stage, float(values["since"]), clients, str(values["reason"]), alive)
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _started(pid: int) -> str:
    """Start time of a process in the kernel's ticks, because process ids are reused; "" if unknown."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass  # the process exists and belongs to another user
    except (OSError, OverflowError, ValueError):
        return False
    return pid > 0 and _started(pid) == started
