"""Fifty SuperNodes on one machine, twenty rounds, two of them killed and the SuperLink restarted on the way.

python -m reproductions.experiments.scale runs/scale                         # prints a table
python -m reproductions.experiments.scale runs/scale --nodes 20 --rounds 10

All are real processes that talk over loopback: a SuperLink with a database, a SuperExec with the ServerApp, and for
each node a SuperNode, its SuperExec and a ClientApp per message. So that memory and cores suffice, all are forked from
one process that has imported Flower, torch and fedmerit, without workers. SIGKILL
falls on a random node, in two random rounds; each is started again two rounds later. The SuperLink is killed in the
middle. A SuperNode that ends by itself, as it does when the SuperLink answers with an error, is started again at once.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedmerit import Run
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import Loopback, partitions
from fedmerit.flower.start import write_app
from fedmerit.store.ledger import Ledger

SEED = 20
BACK = 2
"""Rounds after which a killed node is started again."""


def settings(nodes: int, rounds: int, deadline: float) -> Config:
    """A linear model on scikit-learn's digits, dealt out unevenly; evaluated at the end alone."""
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": nodes, "model": "digits-linear"}
    run = {"rounds": rounds, "fraction": 1.0, "workers": 1, "evaluate_every": rounds, "deadline": deadline}
    recipe = {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"}
    return make_config({"task": task, "train": {"lr": 0.5, "epochs": 1, "batch": "full"}, "recipe": recipe, "run": run})


@contextmanager
def federation(folder: Path, nodes: int) -> Iterator[Loopback]:
    """All of it on loopback, forked from one process; nodes begin one after the other, not all at once."""
    made = Loopback(folder, partitions(nodes), lasting=True, forked=True)
    try:
        made.superlink()
        prefer(made)
        ends = time.monotonic() + 600
        for place in range(nodes):
            made.supernode(place)
            while "SuperNode ID" not in made.log(f"node{place}"):
                if time.monotonic() > ends:
                    raise SystemExit(f"{place} of {nodes} SuperNodes connected within 10 minutes")
                revived(made, place + 1, 0)
                time.sleep(0.1)
        yield made
    finally:
        made.end()


def prefer(made: Loopback) -> None:
    """Let the SuperLink, which has a machine of its own in earnest, go before nodes; as others do where we may not."""
    pid = int(re.findall(r"Started server process \[(\d+)\]", made.log("superlink"))[-1])
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, -10)


@dataclass
class Watch:
    """How much memory the machine has left, at the least, and how many processes of ours there were, at the most."""

    least: float = float("inf")
    most: int = 0

    def look(self) -> None:
        """Now."""
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        self.least = min(self.least, int(lines["MemAvailable"].split()[0]) / 2**20)
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        self.most = max(self.most, sum("fedmerit.flower.supernode" in line for line in listed))


def plan(nodes: int, rounds: int) -> dict[str, list[int]]:
    """Which nodes are killed, after which rounds, and after which the SuperLink is."""
    draw = random.Random(SEED)
    after = sorted(draw.sample(range(2, rounds - BACK), 2))
    return {"nodes": draw.sample(range(nodes), 2), "after": after, "link": [rounds // 2]}


def play(made: Loopback, out: Path, nodes: int, rounds: int, watch: Watch, hours: float) -> list[str]:
    """Follow the ledger, kill and start again as planned; what was done, and when."""
    planned, told, done = plan(nodes, rounds), list[str](), 0
    ends = time.monotonic() + 3600 * hours
    while not (out / "model.safetensors").exists():
        if time.monotonic() > ends:
            raise SystemExit(f"stopped after round {done}: {hours:g} h are over")
        time.sleep(1)
        watch.look()
        told += revived(made, nodes, done)
        last = Ledger.open(out / "ledger.db").last_round() if (out / "ledger.db").exists() else 0
        for round in range(done + 1, last + 1):
            for node, after in zip(planned["nodes"], planned["after"], strict=True):
                if round == after:
                    made.kill(f"node{node}")
                    told.append(f"after round {round}: SIGKILL of SuperNode {node}")
                if round == after + BACK:
                    made.supernode(node)
                    told.append(f"after round {round}: SuperNode {node} started again")
            if round in planned["link"]:
                made.kill("superlink")
                time.sleep(5)
                made.superlink()
                prefer(made)
                told.append(f"after round {round}: SIGKILL of the SuperLink, started again 5 s later")
            print(f"round {round}; {watch.least:.1f} GB left at the least", flush=True)
        done = last
    return told


def revived(made: Loopback, nodes: int, done: int) -> list[str]:
    """Start nodes again that ended by themselves, as systemd does: a SuperNode gives up when the SuperLink fails."""
    ended = [place for place in range(nodes) if name_ended(made, f"node{place}")]
    for place in ended:
        made.supernode(place)
    return [f"after round {done}: SuperNode {place} had ended by itself, and was started again" for place in ended]


def name_ended(made: Loopback, name: str) -> bool:
    """Whether a process ended that we did not kill."""
    return name in made.processes and made.processes[name].poll() is not None


def lost(run: Run, nodes: int, rounds: int) -> list[str]:
    """Rounds that are not in the ledger, and clients that a round neither weighed nor left out with a reason."""
    there = [row["round"] for row in run.ledger.rounds()]
    missing = [f"round {round}" for round in range(1, rounds + 1) if there.count(round) != 1]
    for round in there:
        named = reasons(run, round).keys() | {one.id for one in run.explain(round)}
        missing += [f"client {client} in round {round}" for client in range(nodes) if client not in named]
    return missing


def reasons(run: Run, round: int) -> Mapping[int, str]:
    """Who was left out of a round, and why."""
    events = (one for one in run.events() if one.round == round and one.kind == "left-out")
    return {one.client: one.text for one in events if one.client is not None and one.text}


def tell(run: Run, nodes: int, rounds: int) -> None:
    """The table."""
    print("| round | weighed | left out, with the reason | seconds of the exchange |\n| --- | --- | --- | --- |")
    for row in run.ledger.rounds():
        round = row["round"]
        why = "; ".join(f"{client}: {text}" for client, text in reasons(run, round).items())
        print(f"| {round} | {len(run.explain(round))} | {why} | {row['seconds']['train']:.0f} |")
    print(f"\nlost: {lost(run, nodes, rounds) or 'nothing'}; accuracy {run.accuracy:.4f}")


def main() -> None:
    """Run, kill, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder for the run and its logs")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--deadline", type=float, default=300.0, help="seconds after which a round goes on without a node"
    )
    parser.add_argument("--hours", type=float, default=3.0, help="when to give up")
    asked = parser.parse_args()
    folder, watch = asked.folder.absolute(), Watch()
    folder.mkdir(parents=True)
    write_app(folder / "app", settings(asked.nodes, asked.rounds, asked.deadline), folder / "run")
    watch.look()
    begun, before = time.monotonic(), watch.least
    with federation(folder, asked.nodes) as made:
        print(f"{asked.nodes} SuperNodes are connected after {time.monotonic() - begun:.0f} s", flush=True)
        begun = time.monotonic()
        made.run(folder / "app")
        told = play(made, folder / "run", asked.nodes, asked.rounds, watch, asked.hours)
        took = time.monotonic() - begun
    print(*told, sep="\n")
    print(f"{took:.0f} s; {before - watch.least:.1f} GB less available at the least; {watch.most} processes of nodes")
    tell(Run.load(folder / "run"), asked.nodes, asked.rounds)


if __name__ == "__main__":
    main()
