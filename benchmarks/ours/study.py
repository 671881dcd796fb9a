"""W11: a short study, and the share of its time in which both cores have work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from memory import cpu_seconds, family
from ours.commands import DIGITS
from ours.timed import Timed, fedmerit

CORES = 2
SAMPLE = 0.02  # seconds between two looks
RENEW = 10  # looks after which it is asked anew which processes belong: dear where a machine has many
STUDY = "fedmerit compare, 3 rows x 5 seeds on digits, 25 rounds"
PLAN = """\
base = "{base}"
seeds = {seeds}
[[row]]
name = "FedAvg"
recipe = {{ name = "fedavg" }}
[[row]]
name = "LD > DS"
[[row]]
name = "DS > LD"
recipe = {{ name = "prioritized", criteria = ["DS", "LD"], normalise = "max" }}
"""


def working(pids: set[int]) -> int:
    """How many threads of these processes run, or wait for nothing but a core."""
    number = 0
    for pid in pids:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError, IndexError):
                    state = Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()[0]
                    number += state == "R"
    return number


def watched(command: list[str], folder: Path) -> tuple[tuple[float, float], float]:
    """Wall and CPU seconds of a command, and the share of the looks at which as many threads as cores had work."""
    looks = busy = 0
    cpu = 0.0
    with (folder / "printed.txt").open("wb") as printed:
        start = perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        while process.poll() is None:
            if looks % RENEW == 0:
                pids = family(process.pid)
            looks, busy, cpu = looks + 1, busy + (working(pids) >= CORES), max(cpu, cpu_seconds(pids))
            sleep(SAMPLE)
    if process.returncode:
        raise SystemExit((folder / "printed.txt").read_text(errors="replace")[-300:])
    return (perf_counter() - start, cpu), busy / max(looks, 1)


def main() -> None:
    """Run the study several times, each in a new folder."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    timed = Timed(job["times"])
    with TemporaryDirectory(dir=job["folder"]) as scratch:
        plan = Path(scratch) / "study.toml"
        plan.write_text(PLAN.format(base=DIGITS, seeds=1 if job["quick"] else 5), encoding="utf-8")
        for time in range(job["times"]):
            command = fedmerit("compare", str(plan), "--out", str(Path(scratch) / f"study-{time}"))
            timed.note(STUDY, *watched(command, Path(scratch)))
    timed.answer()


if __name__ == "__main__":
    main()
