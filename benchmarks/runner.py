"""Runs one runner as a process of its own: with a time limit, its memory watched from outside, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import envs
from memory import MARK as FAMILY
from memory import Peak, family

from peers.common import MARK, STARTED

HERE = Path(__file__).parent
WORK = HERE / ".work"
SAMPLE = 0.5  # seconds between two looks at the memory
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_HOME": str(WORK / "flwr"),
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Outcome:
    """What a runner answered, or why it did not; the most memory it had."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    peak: int = 0


def run(environment: str, module: str, arguments: Sequence[str], threads: int | None, limit: float) -> Outcome:
    """Run `python -m module` in an environment; never raises for what goes wrong in there.

    Variables of this process, such as those that choose an instruction set, hold there too.
    """
    try:
        python = envs.python(environment)
    except (envs.NotInstalled, OSError, subprocess.SubprocessError) as error:
        return Outcome(error=f"not installed: {error}")
    log = WORK / "logs" / f"{module}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [python, "-m", module, *arguments],
            cwd=HERE,
            env=_environment(mark, threads),
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        peak = Peak()
        try:
            in_time = _wait(process, mark, peak, limit)
        finally:
            _end(process, mark)
    if not in_time:
        return Outcome(error=f"stopped after {limit:.0f} s", peak=peak.bytes)
    return _read(log, process.returncode, peak.bytes)


def write_job(job: Mapping[str, Any]) -> str:
    """The job in a file for a runner to read."""
    path = WORK / "job.json"
    path.write_text(json.dumps(job), encoding="utf-8")
    return str(path)


def _environment(mark: str, threads: int | None) -> dict[str, str]:
    count = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")} if threads else {}
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "src")])  # what lies beside the bench is what it measures
    started = {FAMILY: mark, STARTED: repr(perf_counter()), "PYTHONPATH": paths}
    return {**os.environ, **QUIET, **count, **started}


def _wait(process: subprocess.Popen[bytes], mark: str, peak: Peak, limit: float) -> bool:
    """Whether it ended within the limit; looks at its memory meanwhile."""
    deadline = perf_counter() + limit
    while perf_counter() < deadline:
        peak.look(family(process.pid, mark))
        with suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE)
            return True
    return False


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End what is left of the runner's processes: politely, then not; each by its id."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        until = perf_counter() + patience
        left = family(process.pid, mark) - {process.pid} if process.poll() is not None else family(process.pid, mark)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, number)
        while left and perf_counter() < until:
            sleep(0.1)
            process.poll()
            left = family(process.pid, mark) - ({process.pid} if process.returncode is not None else set())
        if not left:
            return


def _read(log: Path, code: int, peak: int) -> Outcome:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith(MARK):
            return Outcome(json.loads(line.removeprefix(MARK)), peak=peak)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return Outcome(error=f"ended with {code}: {last[:200]}", peak=peak)
