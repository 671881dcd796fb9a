"""A time budget for a round: epochs by simulated speed here, by the clock where clients time themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fleets import on_flower, run_rounds
from helpers import SoftmaxLearner, small_task

from fedmerit import Task, prioritized
from fedmerit.core.criteria.table import BUDGET_COMPUTATION, DS
from fedmerit.core.state import Record
from fedmerit.fleet.client import Job, train_clients
from fedmerit.fleet.local import LocalFleet

RECIPE = prioritized(BUDGET_COMPUTATION, DS, normalise="max")


def task() -> Task:
    """Ten and twenty rows, at 20 and 10 rows a second: in 3 seconds six epochs and one."""
    made = small_task((10, 20), (4, 4), SoftmaxLearner(lr=0.5, epochs=1))
    return Task(replace(made.federation, facts={"speed": (20.0, 10.0)}), made.learner)


def first_round(fleet: Any) -> Record:
    return run_rounds(fleet, RECIPE, 1, budget_seconds=3.0)[1][0]


def test_simulated_speeds_decide_on_epochs_on_every_fleet():
    made = task()
    with LocalFleet(made) as local:
        here = first_round(local)
    assert here.facts["done"].tolist() == [6, 1]

    there = first_round(on_flower(made))
    assert there.facts["done"].tolist() == [6, 1]
    assert here.weights is not None
    assert there.weights is not None
    assert here.weights.weights.tolist() == there.weights.weights.tolist()
    assert here.weights.raw[:, 0].tolist() == [6, 1]


def test_by_the_clock_there_is_at_least_one_epoch_and_more_where_there_is_time():
    made = task()
    samples = made.federation.train.samples(0, 3)
    start = made.learner.start(1)
    (one,) = train_clients(made.learner, [Job(start, samples, 3, budget=1e-9)], ["done", "samples"])
    assert one.facts["done"] == 1
    (more,) = train_clients(made.learner, [Job(start, samples, 3, budget=0.2)], ["done", "samples"])
    assert more.facts["done"] > 1
