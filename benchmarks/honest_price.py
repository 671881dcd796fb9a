"""What guards cost where all clients are honest: python benchmarks/honest_price.py [SEEDS [TASK ...]] [--with GUARD].

Paired seeds on tasks whose clients have unequal numbers of rows. Needs the data of mnist and adult (FEDMERIT_DATA).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedmerit import DS, LD, Recipe, Run, Task, fedavg, federate, load_task, prioritized, robust
from fedmerit.core.stages.claims import Claims
from fedmerit.core.weights.limits import Cap

TASKS: dict[str, dict[str, Any]] = {
    "digits": {
        "partition": "dirichlet",
        "alpha": 0.3,
        "clients": 30,
        "train": {"lr": 0.5, "epochs": 2, "batch": "full"},
    },
    "mnist": {
        "partition": "dirichlet",
        "alpha": 0.3,
        "clients": 100,
        "model": "mnist-mlp",
        "train": {"lr": 0.2, "epochs": 1, "batch": "full"},
    },
    "adult": {
        "partition": "attribute-label",
        "alpha": 0.3,
        "clients": 50,
        "train": {"lr": 0.1, "epochs": 1, "batch": "full"},
    },
}
TARGETS = {"digits": 0.85, "mnist": 0.75, "adult": 0.84}
ROUNDS, FRACTION = 30, 0.2
RECIPES = {"fedavg": fedavg(), "LD > DS": prioritized(LD, DS, normalise="max")}
GUARDS: dict[str, Callable[[Recipe], Recipe]] = {
    "cap 2": lambda recipe: replace(recipe, limits=(Cap(2.0),)),
    "cap 2, claims, no anchor": lambda recipe: replace(recipe, limits=(Cap(2.0),), stages=(Claims(),)),
    "cap 2, claims": lambda recipe: replace(recipe, limits=(Cap(2.0, anchored=True),), stages=(Claims(),)),
    "robust": lambda recipe: robust(*recipe.criteria[:-1]),  # by size too, which stands last
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=10)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--with", dest="guards", action="append", choices=list(GUARDS), help="default: all")
    parser.add_argument("--recipe", dest="recipes", action="append", choices=list(RECIPES), help="default: all")
    options = parser.parse_args()
    print("| task | recipe | with | accuracy without | points | rounds to target |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in options.tasks:
        tasks = [load_task(name, seed=seed, **TASKS[name]) for seed in range(options.seeds)]
        for called in options.recipes or RECIPES:
            plain = play(tasks, RECIPES[called])
            for guard in options.guards or GUARDS:
                paid = play(tasks, GUARDS[guard](RECIPES[called]))
                cells = [name, called, guard, *compared(plain, paid, TARGETS[name])]
                print("|", " | ".join(cells), "|", flush=True)


def compared(plain: Sequence[Run], paid: Sequence[Run], target: float) -> tuple[str, str, str]:
    """Accuracy without the guard, points with it, and rounds to the target."""
    change = np.array([last(one) - last(other) for one, other in zip(paid, plain, strict=True)])
    half = student.ppf(0.975, len(change) - 1) * change.std(ddof=1) / len(change) ** 0.5
    without = [reached(run, target) for run in plain]
    more = fmean(reached(run, target) for run in paid) / fmean(without) - 1
    speed = f"{fmean(without):.1f} {more:+.1%}" if min(without) <= ROUNDS else "not reached"
    return f"{fmean(map(last, plain)):.2f}", f"{change.mean():+.2f} ± {half:.2f}", speed


if __name__ == "__main__":
    main()
