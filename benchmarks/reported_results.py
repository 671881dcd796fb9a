"""How often results that clients report are doubted, honest or not: python benchmarks/reported_results.py.

Honest federations whose clients judge the candidates of a search and report the loss of the received model; a case is
one client in one round. The liars are the same clients with other answers. A case is an alarm below `SUSPECT`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedmerit import load_task
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.consistency import SUSPECT, Consistency
from fedmerit.core.criteria.table import DS, LossPower
from fedmerit.core.facts import LOSS
from fedmerit.core.recipe import Recipe
from fedmerit.core.results import Reports, agreement
from fedmerit.core.round import play
from fedmerit.core.search.step_search import STEPS, BoldestFirst
from fedmerit.core.state import State
from fedmerit.core.types import Matrix
from fedmerit.fleet.local import LocalFleet

ROUNDS = 10
TASKS: Mapping[str, dict[str, Any]] = {
    "digits, Dirichlet 0.1": {"data": "digits", "clients": 20, "partition": "dirichlet", "alpha": 0.1},
    "digits, Dirichlet 0.5": {"data": "digits", "clients": 20, "partition": "dirichlet", "alpha": 0.5},
    "digits, Dirichlet 2": {"data": "digits", "clients": 20, "partition": "dirichlet", "alpha": 2.0},
    "digits, iid": {"data": "digits", "clients": 20, "partition": "iid"},
    "digits, two shards": {"data": "digits", "clients": 20, "partition": "shards", "shards": 2},
    "FEMNIST, writers": {"data": "femnist", "clients": 40, "partition": "natural", "invert": True},
}
SERVER = 200
LIES: Mapping[str, Callable[[Matrix], Matrix]] = {
    "honest": lambda said: said,
    "upside down": lambda said: said.max(axis=1, keepdims=True) + said.min(axis=1, keepdims=True) - said,
    "best / 3": lambda said: np.where(said == said.min(axis=1, keepdims=True), said / 3, said),
    "worst / 3": lambda said: np.where(said == said.max(axis=1, keepdims=True), said / 3, said),
    "all x 3": lambda said: 3 * said,
    "all 0": lambda said: 0 * said,
}
CLAIMS: Mapping[str, Callable[[Matrix], Matrix]] = {
    "honest": lambda said: said,
    "x 2": lambda said: 2 * said,
    "x 3": lambda said: 3 * said,
    "x 10": lambda said: 10 * said,
}


def rounds(settings: dict[str, Any], by: str, seed: int, lr: float, epochs: int) -> Iterator[tuple[Reports, Reports]]:
    """What was reported in each round: by the judges, and the loss of the received model."""
    task = load_task(**settings, server=SERVER, validation=0.2, seed=seed, train={"lr": lr, "epochs": epochs})
    search = BoldestFirst(STEPS, by=by, accept=0.8, count="median")  # type: ignore[arg-type]
    recipe = Recipe((DS, LossPower(), Consistency(("results",))), search=search)
    with LocalFleet(task, workers=1) as fleet:
        state = State(fleet.server.first_model(seed))
        for _ in range(ROUNDS):
            before = state.model
            state, record = play(state, recipe, fleet, selection=Uniform(0.5), seed=seed, evaluate=False)
            reports = record.aggregation.reports if record.aggregation else None
            assert reports is not None
            assert fleet.server.predict is not None
            received = fleet.server.predict([before])
            assert received.probabilities is not None
            own = received.target.losses(received.probabilities[0], received.y)[np.newaxis]
            said, rows = record.facts[LOSS][:, np.newaxis], record.facts["samples"]
            losses = Reports(record.ids, said, rows, own, received.y, "loss")
            yield reports, losses


def alarms(reports: Reports, lie: Callable[[Matrix], Matrix]) -> list[bool]:
    """Of each client that was asked, whether it is doubted."""
    asked = ~np.isnan(reports.values).all(axis=1)
    values = agreement(replace(reports, values=lie(reports.values)))
    return (values[asked] < SUSPECT).tolist()


def main() -> None:
    """Print the shares of cases with an alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--task", nargs="+", default=[*TASKS], choices=[*TASKS])
    chosen = parser.parse_args()
    names = [f"{by}: {lie}" for by in ("loss", "accuracy") for lie in LIES] + [f"own loss: {claim}" for claim in CLAIMS]
    print("| clients | cases |", " | ".join(names), "|")
    print("| --- | ---: |", " | ".join("---:" for _ in names), "|")
    for title in chosen.task:
        found: dict[str, list[bool]] = {name: [] for name in names}
        for by in ("loss", "accuracy"):
            for lr, epochs in ((0.1, 2), (0.5, 5)):
                for seed in chosen.seeds:
                    for reports, losses in rounds(TASKS[title], by, seed, lr, epochs):
                        for name, lie in LIES.items():
                            found[f"{by}: {name}"] += alarms(reports, lie)
                        for name, claim in CLAIMS.items():
                            found[f"own loss: {name}"] += alarms(losses, claim)
        cells = [f"{np.mean(found[name]):.1%}" for name in names]
        print(f"| {title} | {len(found['loss: honest'])} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
