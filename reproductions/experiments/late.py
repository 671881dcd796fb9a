"""What late clients cost: accuracy and simulated waiting with 0, 20 and 40 % of the clients delayed in each round.

python -m reproductions.experiments.late  # prints the table of docs/results/late.md

Digits over 20 unlike clients (Dirichlet, alpha 0.5), all asked in each of 20 rounds, five seeds; delays of 120 s on
average.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedmerit import run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.collect import Uniform
from fedmerit.core.collect.late import Delayed, Wait

CLIENTS, ROUNDS, SEEDS, MEAN_DELAY = 20, 20, range(5), 120.0
RULES = {"60 s, then 8 of 10": Wait(0.8, 60.0), "60 s, then 5 of 10": Wait(0.5, 60.0)}
RECIPES: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "prioritized": {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"},
}


def settings(recipe: str, seed: int, share: float, wait: Wait | None) -> Config:
    """One run."""
    run: dict[str, Any] = {"rounds": ROUNDS, "fraction": 1.0, "seed": seed, "workers": 1, "evaluate_every": ROUNDS}
    if wait is not None and share:
        run |= {"wait": {"min_fraction": wait.min_fraction, "seconds": wait.seconds}}
        run |= {"delays": {"share": share, "seconds": MEAN_DELAY}}
    task = {"partition": "dirichlet", "alpha": 0.5, "clients": CLIENTS, "model": "digits-linear"}
    return make_config(
        {"task": task, "train": {"lr": 0.5, "epochs": 1, "batch": "full"}, "recipe": RECIPES[recipe], "run": run}
    )


def seconds_per_round(share: float, wait: Wait) -> float:
    """The mean simulated length of a round under a rule."""
    delays = Delayed(Uniform(1.0), wait, share, MEAN_DELAY)
    rounds = [(seed, index) for seed in SEEDS for index in range(1, ROUNDS + 1)]
    arrivals = (delays.arrivals(index, range(CLIENTS), seed).values() for seed, index in rounds)
    return mean(wait.ends(list(times)) for times in arrivals)


def line(recipe: str, share: float, rule: str, wait: Wait | None) -> str:
    """One row of the table."""
    accuracies, left_out = [], []
    for seed in SEEDS:
        with TemporaryDirectory() as folder:
            run = run_config(settings(recipe, seed, share, wait), Path(folder) / "run")
            accuracies.append(run.accuracy)
            left_out.append(sum(event.kind == "left-out" for event in run.events()) / ROUNDS)
    length = seconds_per_round(share, wait or Wait(1.0, 60.0)) if share else 0.0
    spread = f"{np.mean(accuracies):.4f} ± {stdev(accuracies):.4f}"
    return f"| {recipe} | {share:.0%} | {rule} | {spread} | {mean(left_out):.1f} | {length:.0f} s |"


def main() -> None:
    """Print the table."""
    print("| recipe | delayed | the round waits | accuracy | late per round | waiting per round |")
    print("| --- | --- | --- | --- | --- | --- |")
    for recipe in RECIPES:
        print(line(recipe, 0.0, "nobody is late", None), flush=True)
        for share in (0.2, 0.4):
            print(line(recipe, share, "for all", None), flush=True)
            for rule, wait in RULES.items():
                print(line(recipe, share, rule, wait), flush=True)


if __name__ == "__main__":
    main()
