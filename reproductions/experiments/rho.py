"""Which `rho` for FedVal? Accuracy and the poisoned clients' weight, unranked and with the top half, on three tasks.

FEDMERIT_DATA=... python -m reproductions.experiments.rho run  # about half an hour; resumes what was stopped
python -m reproductions.experiments.rho tell                   # prints the tables

Digits is the README's example, Adult that of docs/results/fedval.md with at most 400 rows per client; 40 % of the
clients are poisoned on both. In "digits, honest" none is, and labels are spread unevenly (Dirichlet 0.1). Seeds 101 to
105 choose, seeds 1 to 10 report. The null row repeats FedAvg with other draws.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit import Recipe, Run, Task, fedavg, federate, fedval, load_task
from fedmerit.core.types import Vector
from fedmerit.errors import NoteWarning
from fedmerit.study.statistics import interval
from fedmerit.tasks.federation import Split

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "rho"
CHOOSING, SEEDS = (101, 102, 103, 104, 105), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
RHOS: Sequence[Any] = ("1/K", 0.1, 0.25, 0.5, 0.75, 1.0)
DIGITS: Mapping[str, Any] = {
    "partition": "dirichlet",
    "alpha": 1.0,
    "clients": 20,
    "server": 200,
    "train": {"lr": 0.3, "epochs": 5},
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "digits": {**DIGITS, "attack": {"kind": "label-flip", "share": 0.4}},
    "digits, honest": {**DIGITS, "alpha": 0.1},
    "adult": {
        "partition": "dirichlet",
        "alpha": 1.0,
        "clients": 20,
        "server": 1000,
        "kinds": {"poisoned": 0.4},
        "train": {"lr": 0.05, "epochs": 2},
    },
}
OBJECTIVES = {"adult": ("accuracy", "opportunity:sex")}
ROUNDS = {"adult": (20, 1.0)}
"""Rounds, and the share of the clients in each, where they are not those of digits."""
ROWS, NULL = 400, "null"


def rows_of(data: str) -> dict[str, Recipe]:
    """Return the recipes of a task by name."""
    ranks: Mapping[str, Any] = {"unranked": None, "top": "top"}
    rows = {"fedavg": fedavg(), NULL: fedavg()}
    for name, rank in ranks.items():
        rows |= {f"{name} {rho}": fedval(*OBJECTIVES.get(data, ("accuracy",)), rank=rank, rho=rho) for rho in RHOS}
    return rows


@cache
def task_of(data: str, seed: int) -> Task:
    """Load the clients of a seed once, with at most `ROWS` rows each."""
    task = load_task(data.partition(",")[0], seed=seed, **TASKS[data])
    train = task.federation.train
    places = np.concatenate([np.arange(start, min(start + ROWS, stop)) for start, stop in pairwise(train.offsets)])
    offsets = np.concatenate([[0], np.cumsum(np.minimum(train.sizes, ROWS))])
    attributes = {name: column[places] for name, column in train.attributes.items()}
    cut = Split(train.x[places], train.y[places], offsets, attributes)
    return replace(task, federation=replace(task.federation, train=cut))


def file_of(data: str, row: str, seed: int) -> Path:
    """Return the file of a run's figures."""
    return RUNS / f"{data}-{row}-{seed}.json".replace(", ", "-").replace(" ", "-").replace("/", "-of-")


def measure(data: str, row: str, seed: int) -> None:
    """Run once, unless the figures are there."""
    path = file_of(data, row, seed)
    if path.exists():
        return
    rounds, fraction = ROUNDS.get(data, (25, 0.5))
    task, draw = task_of(data, seed), seed + 1000 * (row == NULL)
    run = federate(task, rows_of(data)[row], rounds=rounds, fraction=fraction, seed=draw, evaluate_every=rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"accuracy": float(run.accuracy), "weight": poisoned_weight(run, task)}))
    print(path.stem, f"{run.accuracy:.3f}", flush=True)


def poisoned_weight(run: Run, task: Task) -> float:
    """Return the weight of all poisoned clients together, as a mean over the rounds."""
    planted = {client for client, name in enumerate(task.federation.names) if name.endswith("poisoned")}
    bad = planted | set(task.attackers.members)
    rounds = range(1, run.ledger.last_round() + 1)
    return float(np.mean([sum(one.weight for one in run.explain(index) if one.id in bad) for index in rounds]))


def figures(data: str, row: str, seeds: Sequence[int], what: str) -> Vector:
    """Return a figure of each seed."""
    return np.array([json.loads(file_of(data, row, seed).read_text())[what] for seed in seeds])


def cell(values: Vector) -> str:
    """Return the mean and its 95 % interval."""
    low, high = interval(values)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def tables(seeds: Sequence[int]) -> Iterator[str]:
    """Yield a table per task; differences are to rho = 0.5 with the same ranks, and of the null row to FedAvg."""
    for data in TASKS:
        yield f"\n| {data}, seeds {seeds[0]} to {seeds[-1]} | accuracy | difference to 0.5 | weight of the poisoned |"
        yield "| --- | ---: | ---: | ---: |"
        for row in rows_of(data):
            baseline = f"{row.partition(' ')[0]} 0.5" if " " in row else "fedavg"
            accuracy, weight = (figures(data, row, seeds, what) for what in ("accuracy", "weight"))
            change = accuracy - figures(data, baseline, seeds, "accuracy")
            low, high = interval(change)
            gain = f"{change.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
            yield f"| {row} | {cell(accuracy)} | {gain} | {weight.mean():.3f} |"


def main() -> None:
    """Run, or tell."""
    warnings.simplefilter("ignore", NoteWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    if parser.parse_args().what == "tell":
        print("\n".join([*tables(CHOOSING), *tables(SEEDS)]))
        return
    for data in TASKS:
        for seed in (*CHOOSING, *SEEDS):
            for row in rows_of(data):
                measure(data, row, seed)


if __name__ == "__main__":
    main()
