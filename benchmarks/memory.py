"""Memory and CPU seconds of a process and all that it started, as Linux counts them: shared pages once (PSS)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MARK = "BENCH_RUN"  # an environment variable that a runner's processes inherit
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")


def family(root: int, mark: str | None = None) -> set[int]:
    """The process, its descendants, all of its session, and all that carry the mark."""
    parents, found = {}, {root}
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            parents[pid] = int(fields[1])
            if int(fields[3]) == root or (
                mark and f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            ):
                found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found & (parents.keys() | {root})


def resident(pids: set[int]) -> int:
    """The sum of resident bytes, shared pages counted in each process: cheap to ask."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total


def proportional(pids: set[int]) -> int:
    """The sum of proportional bytes: a page shared by k processes counts 1/k in each."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def tree_bytes(root: int) -> int:
    """Proportional bytes of a process and its descendants."""
    return proportional(family(root))


def cpu_seconds(pids: set[int]) -> float:
    """What the processes, and those of their children that have ended, had of the cores; in hundredths of a second."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / TICK


def family_cpu() -> float:
    """CPU seconds of this process and of all that the bench started with it."""
    return cpu_seconds(family(os.getpid(), os.environ.get(MARK)))


class Peak:
    """The most that a family had in memory. PSS is dear to ask for, so it is asked only when plain RSS has grown."""

    def __init__(self) -> None:
        self.bytes, self._resident = 0, 0

    def look(self, pids: set[int]) -> None:
        """Take a sample."""
        now = resident(pids)
        if now > self._resident * 1.01:
            self._resident = now
            self.bytes = max(self.bytes, proportional(pids))
