"""What an exchange with real SuperNodes costs: Flower's own `flower-supernode` against `fedmerit flower node`.

python -m reproductions.experiments.exchange  # prints the table of docs/results/flower.md

Two deployments of four SuperNodes on loopback stand side by side, one of each; runs of digits take turns on them. An
exchange is a round's `train`. CPU seconds are those of the nodes' ClientApps and fork servers, by the kernel's count;
SuperLink, SuperNodes and ServerApp are not in them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from fedmerit import Run
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import Loopback, loopback
from fedmerit.flower.processes import descendants
from fedmerit.flower.start import write_app

NODES, ROUNDS, TURNS = 4, 4, 3
PLAIN, QUICK = "flower-supernode", "fedmerit flower node"
TICKS = os.sysconf("SC_CLK_TCK")


def settings() -> Config:
    """Four unlike clients of scikit-learn's digits; an evaluation at the end alone."""
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES}
    run = {"rounds": ROUNDS, "fraction": 1.0, "workers": 1, "evaluate_every": ROUNDS}
    return make_config({"task": task, "train": {"lr": 0.5, "batch": "full"}, "recipe": {"name": "fedavg"}, "run": run})


def cpu_seconds(made: Loopback) -> float:
    """Of all processes that the nodes started, ended or not; of the SuperExecs themselves only what they started."""
    total = 0.0
    for place in range(NODES):
        node = made.processes[f"node{place}"].pid
        for pid in descendants(node):
            user, system, user_ended, system_ended = times(pid)
            total += user_ended + system_ended + (0.0 if "superexec" in words(pid) else user + system)
    return total


def times(pid: int) -> list[float]:
    """User and system seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return [0.0] * 4
    return [int(field) / TICKS for field in fields[11:15]]


def words(pid: int) -> str:
    """A process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def turn(made: Loopback, folder: Path) -> list[float]:
    """One run; the seconds of each round's exchange."""
    write_app(folder / "app", settings(), folder / "run")
    made.run(folder / "app", folder.name)
    made.wait_for(folder.name, "kept in", 1800)
    return [row["seconds"]["train"] for row in Run.load(folder / "run").ledger.rounds()]


def main() -> None:
    """Runs in turns, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    arguments = parser.parse_args()
    walls: dict[str, list[float]] = {PLAIN: [], QUICK: []}
    cpu: dict[str, list[float]] = {PLAIN: [], QUICK: []}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        made = {
            which: stack.enter_context(loopback(folder / f"link-{which.split()[0]}", NODES, quick=which == QUICK))
            for which in walls
        }
        for index in range(arguments.turns):
            for which, federation in made.items():
                begun = cpu_seconds(federation)
                seconds = turn(federation, folder / f"{which.split()[0]}-{index}")
                messages = NODES * (ROUNDS + 2)  # a greeting before the rounds, an evaluation after
                walls[which] += seconds
                cpu[which].append((cpu_seconds(federation) - begun) / messages)
                print(f"{which}, turn {index}: {[round(one, 1) for one in seconds]} s per exchange,", end=" ")
                print(f"{cpu[which][-1]:.2f} CPU s per message", flush=True)
    print("| SuperNode | seconds of an exchange, median (least to most) | CPU seconds of a node per message |")
    print("| --- | --- | --- |")
    for which in walls:
        of = walls[which]
        print(f"| {which} | {median(of):.1f} ({min(of):.1f} to {max(of):.1f}) | {median(cpu[which]):.2f} |")
    ratio = median(walls[QUICK]) / median(walls[PLAIN])
    print(f"| ratio | {ratio:.2f} | {median(cpu[QUICK]) / median(cpu[PLAIN]):.2f} |")


if __name__ == "__main__":
    main()
