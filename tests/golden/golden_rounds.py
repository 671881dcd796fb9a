"""Recipes and configurations whose rounds are known to the bit, and what is hashed of a run.

Each case states `normalise` and `batch`, so that a changed default does not change its bits. Configurations name the
recipes here as `golden_rounds:NAME`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath
from threadpoolctl import threadpool_info

from fedmerit import Adam, Backtracking, Cap, Claims, Clip, Momentum, Product, Recipe, Server, Validated
from fedmerit.config.schema import Config, load_config
from fedmerit.core import recipes
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.table import CB, DATA_RATIO, DS, LD, PARTICIPATION
from fedmerit.core.objectives import find_objective
from fedmerit.core.search.search import Weighting
from fedmerit.core.server.aggregators import CoordinateMedian, GeometricMedian
from fedmerit.store.run_folder import LEDGER, kernels


def by_sum(recipe: Recipe) -> Recipe:
    """The recipe with its columns divided by their sums, whatever the default is."""
    return replace(recipe, normalise="sum")


def bounded() -> Recipe:
    """Momentum, cap, claims, clip and median at once."""
    recipe = recipes.prioritized(LD, DS, normalise="max")
    server = Server(CoordinateMedian(), Momentum())
    return replace(recipe, stages=(Claims(), Clip()), limits=(Cap(1.5),), server=server)


def m2f_bounded() -> Recipe:
    """Groups in which weights are capped and claims bounded."""
    return replace(recipes.m2f(DATA_RATIO, PARTICIPATION), stages=(Claims(k=1.5),), limits=(Cap(1.3),))


class RandomOrders(Backtracking):
    """Backtracking that tries the remaining orders in a random sequence."""

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """Return the current weighting, then the rest."""
        remaining = [weighting for weighting in weightings if weighting != current]
        return [current, *(remaining[place] for place in random.permutation(len(remaining)))]


RECIPES: dict[str, Callable[[], Recipe]] = {
    "fedavg": lambda: by_sum(recipes.fedavg()),
    "pmcfl": lambda: recipes.prioritized(LD, DS, normalise="max"),
    "bounded": bounded,
    "dafl": lambda: recipes.device_aware(LD, DS, normalise="max"),
    "dafl_random": lambda: recipes.device_aware(LD, DS, CB, normalise="max", search=RandomOrders(tolerance=0.0)),
    "adaptive": lambda: recipes.adaptive(normalise="max"),
    "m2f": lambda: recipes.m2f(DATA_RATIO, PARTICIPATION),
    "m2f_reset_until": lambda: recipes.m2f(DATA_RATIO, training="reset", until=2),
    "m2f_bounded": m2f_bounded,
    "fedval": lambda: recipes.fedval("accuracy", normalise="none"),
    "fedval_marginal": lambda: recipes.fedval("accuracy", marginal=True, normalise="none"),
    "gated": lambda: Recipe((Validated(find_objective("accuracy"), min_accuracy=0.3), DS), Product(), "max"),
    "last_answers": lambda: replace(recipes.last_answers(2), normalise="max"),
    "robust": recipes.robust,
    "robust_server": lambda: recipes.robust(server_rows=True),
    "robust_aligned": lambda: recipes.robust(Alignment()),
    "cosine_rewards": lambda: by_sum(recipes.cosine_rewards()),
    "standalone": lambda: by_sum(recipes.standalone()),
    "finetuned": lambda: by_sum(recipes.finetuned(2)),
    "fedamp": recipes.fedamp,
    "ditto": lambda: by_sum(recipes.ditto()),
    "ifca": lambda: by_sum(recipes.ifca(warmup_rounds=1)),
    "ifca_momentum": lambda: replace(by_sum(recipes.ifca(3, 1)), server=Server(optimizer=Momentum())),
    "ifca_adam": lambda: replace(by_sum(recipes.ifca(3, 1)), server=Server(optimizer=Adam(correct=True))),
    "qffl": lambda: replace(recipes.qffl(), normalise="max"),
    "agnostic": lambda: replace(recipes.agnostic(), normalise="max"),
    "shapley": lambda: replace(by_sum(recipes.fedavg()), stages=(Contribution("shapley"), Contribution("cosine"))),
    "by_contribution": lambda: Recipe((Contribution("leave-one-out"), DS), Product(), "max"),
    "geometric_median": lambda: replace(by_sum(recipes.fedavg()), server=Server(GeometricMedian())),
}
globals().update(RECIPES)  # `golden_rounds:fedavg` names the function

BASE = (
    *("task.data=digits", "task.clients=8", "task.server=200", "task.validation=0.2", "task.partition=dirichlet"),
    *("task.alpha=0.3", "run.rounds=4", "run.workers=1", "run.seed=3", "run.fraction=0.8", "train.batch=full"),
)
OF_RECIPES = ("train.epochs=5", "run.audit=['accuracy']")
FEDAVG = ("recipe.name=golden_rounds:fedavg",)
PRIVATE = (
    *("recipe.name=prioritized", "recipe.criteria=DS", "recipe.normalise={name='scale',bounds={DS=300}}"),
    "run.selection=poisson",
)
CONFIGS: dict[str, tuple[str, ...]] = {
    "scaffold": (*FEDAVG, "train.algorithm=scaffold"),
    "feddyn": (*FEDAVG, "train.algorithm=feddyn"),
    "private": (*PRIVATE, "privacy={clip=1.0,noise=1.0,reproducible=true}"),
    "private_nobody": (*PRIVATE, "run.fraction=0.1", "privacy={clip=1.0,noise=1.0,reproducible=true}"),
    "attack": ("recipe.name=robust", "task.attack={kind='sign-flip',share=0.25}"),
    "schedule": (
        *("recipe.name=m2f", "recipe.criteria=Participation,SimulatedComputation"),
        "run.schedule={rates=[[0.5,4],[1.0,4]],epochs=[1,3]}",
    ),
    "yogi": ("recipe.name=prioritized", "recipe.criteria=DS", "recipe.normalise=sum",
             "recipe.server={optimizer={name='yogi',lr=0.05}}"),
}  # fmt: skip


def settings(case: str) -> Config:
    """The configuration of a case."""
    if case in RECIPES:
        return load_config(None, [*BASE, *OF_RECIPES, f"recipe.name=golden_rounds:{case}"])
    return load_config(None, [*BASE, "train.epochs=1", *CONFIGS[case]])


def instructions() -> str:
    """What the bits of a run depend on: torch's kernels, numpy's BLAS and its own loops, and the vendor of the CPU.

    With the same instruction set torch's matrix library takes other kernels on another vendor's CPU.
    """
    blas = next((info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"), "unknown")
    loops = [name for name in _multiarray_umath.__cpu_dispatch__ if _multiarray_umath.__cpu_features__[name]]
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    vendor = next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "unknown")
    return f"{kernels()} {blas} {loops[-1] if loops else 'baseline'} {vendor}"


def numbers(folder: Path) -> Iterator[list[Any]]:
    """The numbers that a ledger keeps of a run: no text, no name, no kind, no time."""
    columns = {
        "rounds": "round, exchanges, evaluations, tests, groups, quality, accuracy, clip, epsilon, "
        "bytes_down, bytes_up",
        "weights": "round, client, criteria, normalised, score, weight, grp, uncapped",
        "rewards": "round, client, entries, accepted, before, after",
        "evaluations": "round, client, correct, size",
        "candidates": "round, place, quality, exchange, chosen",
        "audits": "round, client, value",
    }
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        for table, names in columns.items():
            for row in db.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2"):
                yield [list(json.loads(cell).values()) if isinstance(cell, str) else cell for cell in row]


def digest(folder: Path, model: np.ndarray) -> str:
    """SHA-256 over the model and the numbers of a run."""
    found = hashlib.sha256(model.tobytes())
    for row in numbers(folder):
        found.update(repr(row).encode())
    return found.hexdigest()


def weights(folder: Path) -> list[list[float]]:
    """[round, client, weight] of a run."""
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        return [list(row) for row in db.execute("SELECT round, client, weight FROM weights ORDER BY round, client")]
