"""A keeper: a small process that ends the processes of a federation when whoever started them is gone.

It reads `+PID` and `-PID` from its standard input. Where that ends, and it does so also after SIGKILL, everything that
was begun and not taken back is ended with all that it started. It imports nothing of ours, so it is there at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on; Flower starts some in sessions of their own."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    family = [pid]
    for one in family:  # grows while we go
        family += [child for child, parent in parents.items() if parent == one]
    return family[1:]


def end_family(pid: int) -> None:
    """SIGKILL to the leader of a session, to its group and to all that it started."""
    children = descendants(pid)
    with suppress(ProcessLookupError):  # all of its group have ended by themselves
        os.killpg(pid, signal.SIGKILL)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def keep(lines: Iterable[str]) -> None:
    """Follow who is begun and who has ended; at the end of the lines, end the rest."""
    begun: set[int] = set()
    for line in lines:
        sign, pid = line[0], int(line[1:])
        begun.add(pid) if sign == "+" else begun.discard(pid)
    for pid in begun:
        with suppress(ProcessLookupError):
            if os.getsid(pid) == pid:  # still the process that led a session, not another with its number
                end_family(pid)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep(sys.stdin)
