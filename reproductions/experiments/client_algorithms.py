"""Do SCAFFOLD and FedDyn need fewer rounds than FedAvg on MNIST in shards? Prints a page.

FEDMERIT_DATA=... python -m reproductions.experiments.client_algorithms  # half an hour on one core; can be stopped

Every algorithm is tuned on its own grid with seeds of their own; what was measured is kept in runs/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmerit import fedavg, federate, load_task
from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.core.system import processor
from fedmerit.study.statistics import interval
from fedmerit.tasks.registry import Task, make_learner

KEPT = Path("runs/client-algorithms.json")
TUNED_ON, SEEDS = (101, 102), (1, 2, 3, 4, 5)
ROUNDS, FRACTION, TARGETS = 40, 0.1, (0.8, 0.85, 0.9)
TASK: dict[str, Any] = {"data": "mnist", "partition": "shards", "clients": 100, "model": "mnist-mlp"}
LOCAL: dict[str, Any] = {"epochs": 5, "batch": 60}
LRS = (0.03, 0.1, 0.3, 0.6)
GRIDS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{"lr": lr} for lr in LRS],
    "scaffold": [{"lr": lr} for lr in LRS],
    "feddyn": [{"lr": lr, "prox": alpha} for lr, alpha in product(LRS, (0.01, 0.1))],
}
NAMES = {"sgd": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}
VECTORS = {"sgd": (1, 1), "scaffold": (2, 2), "feddyn": (2, 1)}
"""What a client receives and sends in a round, in models."""


def main() -> None:
    """Tune, measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kept", type=Path, default=KEPT, help="where measurements are kept")
    kept = arguments.parse_args().kept
    measured = measure_with(kept)
    tuned = {name: max(grid, key=lambda one: tuning(measured, name, one)) for name, grid in GRIDS.items()}
    curves = {name: [measured(name, settings, seed) for seed in SEEDS] for name, settings in tuned.items()}
    print(page(measured, tuned, curves), end="")


def measure_with(kept: Path) -> Callable[[str, dict[str, Any], int], list[float]]:
    """Accuracy after each round, measured or remembered."""
    known: dict[str, list[float]] = json.loads(kept.read_text()) if kept.exists() else {}

    def measured(algorithm: str, settings: dict[str, Any], seed: int) -> list[float]:
        key = json.dumps([algorithm, settings, seed])
        if key not in known:
            config = TrainConfig(algorithm=algorithm, **LOCAL, **settings)
            task = replace(data(seed), learner=make_learner(TaskConfig(**TASK), config))
            run = federate(task, fedavg(), rounds=ROUNDS, fraction=FRACTION, seed=seed)
            known[key] = [float(one["accuracy"]) for one in run.ledger.rounds()]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(known))
            print(key, known[key][-1], flush=True)
        return known[key]

    return measured


@lru_cache(maxsize=2)
def data(seed: int) -> Task:
    """The task of a seed; its learner is replaced."""
    return load_task(seed=seed, **TASK)


def tuning(measured: Callable[[str, dict[str, Any], int], list[float]], name: str, settings: dict[str, Any]) -> float:
    """What tuning goes by: the mean accuracy over all rounds, which fast and high curves have."""
    return float(np.mean([measured(name, settings, seed) for seed in TUNED_ON]))


def rounds_to(curve: Sequence[float], target: float) -> int:
    """The first round at the target; one more than there were where it was not reached."""
    return next((index for index, accuracy in enumerate(curve, 1) if accuracy >= target), ROUNDS + 1)


def page(
    measured: Callable[[str, dict[str, Any], int], list[float]],
    tuned: dict[str, dict[str, Any]],
    curves: dict[str, list[list[float]]],
) -> str:
    """The page: tuning, then paired seeds."""
    tuning_rows = [
        f"| {NAMES[name]} | {shown(one)} | {tuning(measured, name, one):.4f}{' *' if one == tuned[name] else ''} |"
        for name, grid in GRIDS.items()
        for one in grid
    ]
    rows = [row(name, tuned[name], curves) for name in GRIDS]
    heads = " | ".join(f"rounds to {target:.0%}" for target in TARGETS)
    return HEAD.format(
        rounds=ROUNDS,
        fraction=FRACTION,
        seeds=", ".join(map(str, SEEDS)),
        tuned_on=", ".join(map(str, TUNED_ON)),
        machine=f"{processor()}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}",
        tuning="\n".join(tuning_rows),
        heads=heads,
        dashes=" | ".join("---:" for _ in TARGETS),
        rows="\n".join(rows),
    )


def row(name: str, settings: dict[str, Any], curves: dict[str, list[list[float]]]) -> str:
    """Means over the seeds and, beside FedAvg's, the paired difference with its interval."""
    cells = []
    for target in TARGETS:
        reached = [rounds_to(curve, target) for curve in curves[name]]
        late = sum(number > ROUNDS for number in reached)
        cells.append(f"{np.mean(reached):.1f}{f' ({late} not)' if late else ''}{against(name, curves, target)}")
    last = [float(np.mean(curve[-5:])) for curve in curves[name]]
    base = [float(np.mean(curve[-5:])) for curve in curves["sgd"]]
    cells.append(f"{np.mean(last):.4f}{difference(last, base, 4) if name != 'sgd' else ''}")
    down, up = VECTORS[name]
    return f"| {NAMES[name]} | {shown(settings)} | {' | '.join(cells)} | {down} + {up} |"


def against(name: str, curves: dict[str, list[list[float]]], target: float) -> str:
    """The paired difference in rounds; empty for the base itself."""
    if name == "sgd":
        return ""
    ours, base = ([rounds_to(curve, target) for curve in curves[one]] for one in (name, "sgd"))
    return difference(ours, base, 1)


def difference(ours: Sequence[float], base: Sequence[float], digits: int) -> str:
    """Mean and 95 % interval of the differences by seed."""
    found = np.subtract(ours, base)
    low, high = interval(found)
    return f", {found.mean():+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def shown(settings: dict[str, Any]) -> str:
    """Settings as a reader would set them."""
    return ", ".join(f"{key} {value:g}" for key, value in settings.items())


HEAD = """\
# SCAFFOLD and FedDyn on MNIST in shards

    FEDMERIT_DATA=... python -m reproductions.experiments.client_algorithms

Both papers say: with unlike clients, fewer rounds than FedAvg. MNIST, 100 clients with two shards each, `mnist-mlp`
(784-64-10), fraction {fraction}, 5 epochs, batches of 60 (50 steps a round), {rounds} rounds, weights by samples (all
clients have as many). Seeds {seeds}; each algorithm tuned on seeds {tuned_on} by its mean accuracy over all rounds.
Machine: {machine}; client training in one process.

## Tuning

| algorithm | settings | mean accuracy over the rounds |
| --- | --- | ---: |
{tuning}

\\* taken.

## What came out

Mean over the seeds and, after the comma, the difference to FedAvg, paired by seed, with its 95 % bootstrap interval. A
target that was not reached counts as {rounds} + 1 rounds. Accuracy at the end
is the mean of the last five rounds. A client that FedDyn meets for the first time receives one model, not two.

| algorithm | settings | {heads} | accuracy at the end | models down + up, a client and round |
| --- | --- | {dashes} | ---: | ---: |
{rows}
"""


if __name__ == "__main__":
    main()
