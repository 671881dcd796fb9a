"""MovieLens 100k as a natural case: the people of one age group are a client; value by the error of ratings.

    python -m benchmarks.weighbench.movielens        # about 10 CPU minutes

The learner is no stack of dense layers, so coalitions are trained one by one. Methods that need classes do not apply.
Data: F. M. Harper and J. A. Konstan, The MovieLens Datasets, 2015, read from FEDMERIT_DATA.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from scipy.stats import spearmanr

from benchmarks.weighbench.cells import ROUNDS, Cell
from benchmarks.weighbench.measure import TRUTH_SEEDS
from benchmarks.weighbench.methods.contributions import cosine
from benchmarks.weighbench.methods.early_cosine import early
from fedmerit import Federation, fedavg, load_task
from fedmerit.core.types import Samples
from fedmerit.study.coalitions import ClientValues, coalitions_of, measure_models, train_coalitions
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task

AGES = (0, 20, 25, 30, 36, 46, 200)
"""Bounds of the six age groups."""


def make_task() -> Task:
    """People of one age group as one client."""
    task = load_task("movielens", seed=0)
    people = task.federation
    ages = np.array(people.facts["age"], float)
    groups = [np.flatnonzero((ages >= low) & (ages < high)) for low, high in itertools.pairwise(AGES)]

    def together(split: Split) -> Split:
        rows = [np.concatenate([np.arange(*split.offsets[[who, who + 1]]) for who in group]) for group in groups]
        order = np.concatenate(rows)
        return Split(split.x[order], split.y[order], np.append(0, np.cumsum([len(own) for own in rows])))

    names = tuple(f"age {low} to {high - 1}" for low, high in itertools.pairwise(AGES))
    data = Federation(names, together(people.train), together(people.test), classes=1, target="number")
    return replace(task, federation=data)


def values(seed: int) -> tuple[np.ndarray, float]:
    """Shapley values by the mean absolute error on one half of the test rows, and CPU seconds."""
    task, begun = make_task(), time.process_time()
    members = coalitions_of(len(AGES) - 1)
    models = train_coalitions(task, fedavg(), members, ROUNDS, seed)
    test = task.federation.test
    half = np.random.default_rng(0).permutation(len(test.y))[seed > 2 :: 2]
    table = measure_models(task, models, Samples(test.x[half], test.y[half], 1, {}), ["mae"])["mae"]
    (found,) = ClientValues(task.federation.names, (seed,), members, {"mae": table[np.newaxis]}).shapley("mae")
    return found, time.process_time() - begun


def main() -> None:
    """Print the values and how methods rank them."""
    with ProcessPoolExecutor(2) as pool:
        found, seconds = zip(*pool.map(values, TRUTH_SEEDS), strict=True)
    truth = np.array(found)
    halves = spearmanr(truth[:2].mean(axis=0), truth[2:].mean(axis=0))[0]
    task = make_task()
    rows = task.federation.train.sizes.astype(float)
    cell = Cell("movielens", "natural", 0, task, rows, np.ones((len(rows), 1)), ((), ()), np.zeros(len(rows)))
    print(f"CPU seconds per seed {np.mean(seconds):.0f}; correlation of the halves {halves:.2f}")
    for name, size, value in zip(task.federation.names, rows, truth.mean(axis=0), strict=True):
        print(f"{name:>14} {size:6.0f} ratings, value {value:+.4f} (mean absolute error)")
    methods = {"rows": rows, "cosine": cosine(cell), "early": np.sqrt(cell.shares) * early(cell)}
    for name, worth in methods.items():
        print(f"Spearman with the truth: {name} {spearmanr(worth, truth.mean(axis=0))[0]:.2f}")


if __name__ == "__main__":
    main()
