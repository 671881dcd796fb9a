"""What an exchange with real SuperNodes costs, with another state of this code against this one, in turns.

git worktree add ../before COMMIT
python -m reproductions.experiments.exchange ../before/src  # prints the table of docs/results/flower.md

Two deployments of four SuperNodes on loopback stand side by side, one with each code; runs of digits take turns on
them. An exchange is a round's `train`. CPU seconds are those of the nodes' ClientApps and workers, by the kernel's
count; SuperLink, SuperNodes and ServerApp are not in them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from fedmerit import Run
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import Loopback, loopback
from fedmerit.flower.processes import descendants
from fedmerit.flower.start import write_app

NODES, ROUNDS, TURNS = 4, 4, 3
HERE = Path(__file__).parents[2] / "src"
TICKS = os.sysconf("SC_CLK_TCK")


def settings() -> Config:
    """Four unlike clients of scikit-learn's digits; an evaluation at the end alone."""
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES}
    run = {"rounds": ROUNDS, "fraction": 1.0, "workers": 1, "evaluate_every": ROUNDS}
    return make_config({"task": task, "train": {"lr": 0.5, "batch": "full"}, "recipe": {"name": "fedavg"}, "run": run})


@contextmanager
def deployment(folder: Path, source: Path, *, quick: bool) -> Iterator[Loopback]:
    """Four SuperNodes with the code of that folder."""
    os.environ["PYTHONPATH"] = str(source)
    with loopback(folder, NODES, quick=quick) as made:
        yield made


def cpu_seconds(made: Loopback) -> float:
    """Of all processes that the nodes started, ended or not; of the SuperExecs themselves only what they started."""
    total = 0.0
    for place in range(NODES):
        node = made.processes[f"node{place}"].pid
        for pid in {*descendants(node), *workers_of(node)}:
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


def workers_of(node: int) -> list[int]:
    """Workers in a node's process group; their parents are gone."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        try:
            if os.getpgid(pid) == os.getpgid(node) and "fedmerit.flower.node" in words(pid):
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def turn(made: Loopback, folder: Path, *, before: bool) -> list[float]:
    """One run; the seconds of each round's exchange."""
    write_app(folder / "app", settings(), folder / "run")
    if before:  # as it was named then
        project = folder / "app" / "pyproject.toml"
        project.write_text(project.read_text().replace("fedmerit.flower.node:client", "fedmerit.flower.app:client"))
    made.run(folder / "app", folder.name)
    made.wait_for(folder.name, "kept in", 1800)
    return [row["seconds"]["train"] for row in Run.load(folder / "run").ledger.rounds()]


def main() -> None:
    """Runs in turns, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="src of the other code")
    parser.add_argument("--turns", type=int, default=TURNS)
    arguments = parser.parse_args()
    walls: dict[str, list[float]] = {"before": [], "now": []}
    cpu: dict[str, list[float]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        made = {
            "before": stack.enter_context(deployment(folder / "before", arguments.before.absolute(), quick=False)),
            "now": stack.enter_context(deployment(folder / "now", HERE, quick=True)),
        }
        for index in range(arguments.turns):
            for which, federation in made.items():
                begun = cpu_seconds(federation)
                seconds = turn(federation, folder / f"{which}-{index}", before=which == "before")
                messages = NODES * (ROUNDS + 2)  # a greeting before the rounds, an evaluation after
                walls[which] += seconds
                cpu[which].append((cpu_seconds(federation) - begun) / messages)
                print(f"{which}, turn {index}: {[round(one, 1) for one in seconds]} s per exchange,", end=" ")
                print(f"{cpu[which][-1]:.2f} CPU s per message", flush=True)
    print("| code | seconds of an exchange, median (least to most) | CPU seconds of a node per message |")
    print("| --- | --- | --- |")
    for which in walls:
        of = walls[which]
        print(f"| {which} | {median(of):.1f} ({min(of):.1f} to {max(of):.1f}) | {median(cpu[which]):.2f} |")
    ratio = median(walls["now"]) / median(walls["before"])
    print(f"| now / before | {ratio:.2f} | {median(cpu['now']) / median(cpu['before']):.2f} |")


if __name__ == "__main__":
    main()
