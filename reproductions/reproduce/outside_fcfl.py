"""FCFL's Adult by doctorate: two clients, and at each the difference between white people and all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.study.study import Study
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task
from reproductions.reproduce.fedval import MetricValues, agnostic, qffl
from reproductions.reproduce.outside import FEDAVG, Beside, make_row
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Scale, Setting

PARITY = {"name": "validated:parity:white", "rho": 1.0}
METRICS = ("accuracy, doctorate", "gap, doctorate", "accuracy, others", "gap, others")


def gaps_by_client(study: Study) -> MetricValues:
    """Of each client's test rows: accuracy, and |P(above 50,000 | white) - P(above 50,000 | not)| as predicted."""
    seeds = list(study.plan.seeds)
    found = {row: {name: np.full(len(seeds), np.nan) for name in METRICS} for row in study.rows}
    for seed in seeds:
        members = [member for member in study.runs if member.seed == seed and str(member) not in study.unfinished]
        task = make_task(members[0].config) if members else None
        for member in members:
            assert task is not None  # it has members
            test, model = task.federation.test, study.run(member.row, seed).model
            predicted = task.learner.predict(model, test.x)
            values = [value for client in (0, 1) for value in accuracy_and_gap(test, client, predicted)]
            for name, value in zip(METRICS, values, strict=True):
                found[member.row][name][seeds.index(seed)] = value
    return found


def accuracy_and_gap(test: Split, client: int, predicted: NDArray[Any]) -> tuple[float, float]:
    """Of one client's rows."""
    rows = test.rows(client)
    right, above, white = predicted[rows] == test.y[rows], predicted[rows] == 1, test.attributes["white"][rows] == 1
    return float(right.mean()), float(abs(above[white].mean() - above[~white].mean()))


BASE: Base = {
    "task": {"data": "adult", "partition": "natural", "model": "adult-linear", "server": 1000},
    "train": {"lr": 0.1, "epochs": 1, "batch": 100},
    "run": {"rounds": 30, "fraction": 1.0, "evaluate_every": 10},
}
ROUNDS: dict[Scale, int] = {"small": 30, "medium": 200, "paper": 2000}
FCFL = Reproduction(
    "outside-fcfl",
    "FCFL: Cui et al., Addressing Algorithmic Disparity and Performance Inconsistency in Federated Learning, NeurIPS "
    "2021; its numbers are those that the authors' code prints for race as the sensitive attribute",
    "Adult over two clients, people with a doctorate and all others: does anything close the gap between white people "
    "and others?",
    (
        FEDAVG,
        make_row("q-FFL", **qffl(1.0)),
        make_row("AFL", **agnostic(0.1)),
        make_row("ours: FedVal, parity", "fedval", criteria=[PARITY], normalise="none"),
        make_row(
            "ours: FedVal, the one nearer to parity",
            "fedval",
            criteria=[PARITY],
            score={"name": "weighted-mean", "weights": [1], "rank": "top"},
            normalise="none",
        ),
        make_row("ours: parity before size", "prioritized", criteria=["validated:parity:white", "DS"], normalise="max"),
    ),
    {
        scale: Setting(
            {WHOLE: {**BASE, "run": {**BASE["run"], "rounds": rounds}}},
            0.2,
            (
                "numbers (age, years of education, hours ...) are features as well, and education is a number; the "
                "paper has words alone",
                f"{rounds} rounds of an epoch with batches of 100 at learning rate 0.1; the paper takes 1,800 to 2,300 "
                "steps of whole batches. The server keeps 1,000 rows for FedVal",
            ),
        )
        for scale, rounds in ROUNDS.items()
    },
    Beside(
        METRICS,
        gaps_by_client,
        {
            WHOLE: {
                "FCFL without a budget": (0.735, 0.158, 0.829, 0.074),
                "FCFL, budget 0.05": (0.729, 0.001, 0.820, 0.045),
            }
        },
        digits=3,
    ),
)
