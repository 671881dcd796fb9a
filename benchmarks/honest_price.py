"""What caps and bounded claims cost where all clients are honest: python benchmarks/honest_price.py [SEEDS [TASK ...]].

Paired seeds on tasks whose clients have unequal numbers of rows. Needs the data of mnist and adult (FEDMERIT_DATA).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedmerit import DS, LD, Recipe, Run, Task, fedavg, federate, load_task, prioritized
from fedmerit.core.claims import Claims

TASKS: dict[str, dict[str, Any]] = {
    "digits": {"partition": "dirichlet", "alpha": 0.3, "clients": 30, "train": {"lr": 0.5, "epochs": 2}},
    "mnist": {
        "partition": "dirichlet",
        "alpha": 0.3,
        "clients": 100,
        "model": "mnist-mlp",
        "train": {"lr": 0.2, "epochs": 1},
    },
    "adult": {"partition": "attribute-label", "alpha": 0.3, "clients": 50, "train": {"lr": 0.1, "epochs": 1}},
}
TARGETS = {"digits": 0.85, "mnist": 0.75, "adult": 0.84}
ROUNDS, FRACTION = 30, 0.2
RECIPES = {"fedavg": fedavg(), "LD > DS": prioritized(LD, DS, normalise="max")}
GUARDS = {
    "cap 2": {"cap": 2.0},
    "cap 2, claims, no anchor": {"cap": 2.0, "claims": Claims(anchor=False)},
    "cap 2, claims": {"cap": 2.0, "claims": Claims()},
}


def reached(run: Run, target: float) -> float:
    """The first round with that accuracy; one past the last where it was never reached."""
    rows = run.ledger.rounds()
    return next((row["round"] for row in rows if row["accuracy"] >= target), len(rows) + 1)


def last(run: Run) -> float:
    """Mean accuracy of the last five rounds, in points."""
    return 100 * fmean(row["accuracy"] for row in run.ledger.rounds()[-5:])


def play(tasks: Sequence[Task], recipe: Recipe) -> list[Run]:
    """A run for each seed."""
    return [federate(task, recipe, rounds=ROUNDS, fraction=FRACTION, seed=seed) for seed, task in enumerate(tasks)]


def main() -> None:
    """Print the differences with their 95 % intervals."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print("| task | recipe | with | accuracy without | points | rounds to target |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in sys.argv[2:] or TASKS:
        tasks = [load_task(name, seed=seed, **TASKS[name]) for seed in range(seeds)]
        target = TARGETS[name]
        for called, recipe in RECIPES.items():
            plain = play(tasks, recipe)
            without = [reached(run, target) for run in plain]
            for guard, parts in GUARDS.items():
                guarded = play(tasks, replace(recipe, **parts))
                change = np.array([last(one) - last(other) for one, other in zip(guarded, plain, strict=True)])
                half = student.ppf(0.975, seeds - 1) * change.std(ddof=1) / seeds**0.5
                more = fmean(reached(run, target) for run in guarded) / fmean(without) - 1
                speed = f"{fmean(without):.1f} {more:+.1%}" if min(without) <= ROUNDS else "not reached"
                cells = [name, called, guard, f"{fmean(map(last, plain)):.2f}"]
                cells += [f"{change.mean():+.2f} ± {half:.2f}", speed]
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
