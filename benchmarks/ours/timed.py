"""Timed parts: wall and CPU seconds of named actions, taken in turn, in the form that the bench reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from peers.common import answer

Took = tuple[float, float]  # wall and CPU seconds


class Timed:
    """Seconds by part; `times` counts after one time that warms up."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seconds: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}
        self.shares: dict[str, list[float]] = {}

    def interleaved(
        self, actions: Mapping[str, Callable[[], object]], warm: int = 1, clock: Callable[[], float] = process_time
    ) -> None:
        """Time actions one after the other, again and again; `clock` counts CPU seconds, by default this process's."""
        for time in range(self.times + warm):
            for name, action in actions.items():
                wall, cpu = perf_counter(), clock()
                action()
                if time >= warm:
                    self.note(name, (perf_counter() - wall, clock() - cpu))

    def commands(self, commands: Mapping[str, Sequence[str]], folder: Path) -> None:
        """Time commands, each in processes of its own whose CPU seconds count together."""
        for time in range(self.times + 1):
            for name, command in commands.items():
                took = run(command, folder)
                if time:  # the first reads files that are in the cache from then on
                    self.note(name, took)

    def note(self, name: str, took: Took, share: float | None = None) -> None:
        """Keep what one part took, and the share of that time in which both cores were busy."""
        self.seconds.setdefault(name, []).append(took[0])
        self.cpu.setdefault(name, []).append(took[1])
        if share is not None:
            self.shares.setdefault(name, []).append(share)

    def answer(self, **more: Any) -> None:
        """Tell the bench."""
        answer({"seconds": self.seconds, "cpu": self.cpu, "shares": self.shares, **more})


def run(command: Sequence[str], folder: Path) -> Took:
    """Seconds of a command, in a new folder, and of all processes that it waited for; what it prints goes to a file."""
    with (folder / "printed.txt").open("wb") as printed, TemporaryDirectory(dir=folder) as new:
        wall = perf_counter()
        process = subprocess.Popen(command, cwd=new, stdout=printed, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = perf_counter() - wall, used.ru_utime + used.ru_stime
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {(folder / 'printed.txt').read_text(errors='replace')[-300:]}")
    return took


def fedmerit(*arguments: str) -> list[str]:
    """A fedmerit command as a user starts it, by the code that is measured."""
    return [sys.executable, "-c", "import sys; from fedmerit.cli import main; sys.exit(main())", *arguments]
