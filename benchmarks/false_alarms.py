"""How often honest clients are suspected, on digits spread in six ways; the figures of docs/untrusted-clients.md.

.venv/bin/python benchmarks/false_alarms.py --seeds 5
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

from fedmerit import Run, federate, load_task
from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import make_config
from fedmerit.study.suspects import suspects_of

SPREADS: tuple[dict[str, Any], ...] = (
    {"partition": "iid"},
    *({"partition": "dirichlet", "alpha": alpha} for alpha in (0.1, 0.3, 0.5, 1.0)),
    {"partition": "shards"},
)
TRAIN: tuple[dict[str, Any], ...] = ({"lr": 0.5, "epochs": 5, "batch": "full"}, {"lr": 0.1, "epochs": 5, "batch": 10})
RECIPES: tuple[dict[str, Any], ...] = ({"name": "fedavg"}, {"name": "fedval", "criteria": ["validated:accuracy"]})


def play(spread: dict[str, Any], train: dict[str, Any], recipe: dict[str, Any], seed: int) -> Run:
    """20 rounds with 10 of 20 clients, all of them honest."""
    task = load_task("digits", seed=seed, train=train, clients=20, server=200, **spread)
    part = make_recipe(make_config({"recipe": recipe}).recipe)
    return federate(task, part, rounds=20, fraction=0.5, seed=seed, evaluate_every=20)


def main() -> None:
    """A line per setting, then the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    alarms, clients = 0, 0
    for spread, train, recipe in product(SPREADS, TRAIN, RECIPES):
        found = [suspects_of(play(spread, train, recipe, seed).ledger) for seed in seeds]
        number = sum(map(len, found))
        kinds = sorted({kind for suspects in found for suspect in suspects for kind in suspect.kinds})
        alarms, clients = alarms + number, clients + 20 * len(found)
        batch = train["batch"]
        print(*spread.values(), f"batch {batch}", recipe["name"], f"{number} of {20 * len(found)}", *kinds, flush=True)
    print(f"all: {alarms} of {clients} honest clients suspected, {alarms / clients:.2%}")


if __name__ == "__main__":
    main()
