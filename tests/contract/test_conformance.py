"""Every recipe on every fleet gives the same weights and models; here the local fleet and Flower's messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from helpers import ProbabilisticSoftmax, random_split, small_task

from fedmerit import (
    DS,
    LD,
    MW,
    BoldestFirst,
    Recipe,
    Samples,
    Task,
    TopShare,
    Validated,
    adaptive,
    cfl,
    cgsv,
    device_aware,
    fedamp,
    fedavg,
    fedval,
    finetuned,
    guarded,
    ifca,
    m2f,
    prioritized,
    rffl,
    standalone,
)
from fedmerit.core.collect.selection import Schedule
from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import Agreement, Alignment, Conduct, Distinct, Nearness, Typical
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, SIMULATED_COMPUTATION
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import begin, play
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.aggregators import NNM, Bucketing, CoordinateMedian, Early, GeometricMedian, TrimmedMean
from fedmerit.core.server.optimizers import Adam, Momentum
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.server.private_sum import Privacy
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.state import Record, State
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower import GridFleet, InProcessGrid, make_client_app
from fedmerit.tasks.registry import ClientHalf

SIZES = (6, 40, 9, 25, 30, 14)
PARITY = Validated(find_objective("accuracy"))
RECIPES: dict[str, Callable[[], Recipe]] = {
    "fedavg": fedavg,
    "prioritized": lambda: prioritized(DS, LD, MW, normalise="max"),
    "momentum": lambda: replace(prioritized(DS, LD, MW, normalise="max"), step=Momentum(0.5)),
    "adam and a search": lambda: replace(device_aware(DS, LD, MW, normalise="max"), step=Adam()),
    "median and clip": lambda: replace(
        prioritized(DS, LD, MW, normalise="max"), aggregate=CoordinateMedian(), clip=Clip()
    ),
    "nnm and a search": lambda: replace(device_aware(DS, LD, normalise="max"), aggregate=NNM(TrimmedMean())),
    "buckets": lambda: replace(fedavg(), aggregate=Bucketing(GeometricMedian())),
    "robust criteria": lambda: prioritized(Alignment(), Agreement(), Distinct(), Nearness(), Typical(), Conduct()),
    "guarded": guarded,
    "company": lambda: replace(prioritized(Company(fewest=4), DS), aggregate=Early(TrimmedMean(), 1)),
    "fedval by gain": lambda: fedval("accuracy", rank="top", marginal=True),
    "device_aware": lambda: device_aware(DS, LD, MW, normalise="max", search=Backtracking(orders="all", tolerance=0.0)),
    "adaptive": lambda: adaptive(LD, DS),
    "orders and steps": lambda: device_aware(
        DS, LD, search=BoldestFirst(((2.0, 0.5), (1.0, 0.0)), judges=3, among="orders", accept=1.0, count="median")
    ),
    "judges": lambda: device_aware(DS, LD, MW, normalise="max", search=Backtracking(judges=2, tolerance=0.0)),
    "m2f, keep": lambda: m2f(PARTICIPATION, SIMULATED_COMPUTATION, DATA_RATIO, initial=0.3),
    "m2f, reset": lambda: m2f(PARTICIPATION, SIMULATED_COMPUTATION, DATA_RATIO, personal="reset", initial=0.0),
    "cgsv, finished alone": lambda: cgsv(beta=2.0, until=3),
    "rffl": lambda: rffl(least=0.9, half_life=2),
    "standalone": standalone,
    "finetuned": lambda: finetuned(until=2),
    "fedamp": lambda: fedamp(sharpness=3.0, until=3),
    "cfl": lambda: cfl(at=0.9),
    "ifca": lambda: replace(ifca(3, dealt=1), step=Momentum(0.5)),
    "m2f, tempered": lambda: m2f(DATA_RATIO, reward=TopShare("max", floor=0.2, temperature=2), until=2, initial=0.0),
    "fedval": lambda: fedval("accuracy", "balanced_accuracy", rank="borda"),
    "capped": lambda: replace(prioritized(DS, LD, normalise="max"), cap=1.2, cap_group=0.5),
    "capped claims": lambda: replace(prioritized(LD, DS, normalise="max"), cap=1.5, claims=Claims(k=1.2)),
    "reputation": lambda: prioritized(Reputation(MW, half_life=2), Consistency(), DS, normalise="max"),
    "capped groups": lambda: replace(m2f(PARTICIPATION, SIMULATED_COMPUTATION, DATA_RATIO, initial=0.0), cap=1.3),
    "private": lambda: replace(
        prioritized(DS, LD, normalise="scale", scales={"DS": 30, "LD": 3}),
        privacy=Privacy(clip=0.5, noise=0.4, fraction=0.8, reproducible=True),
    ),
    "private with an adaptive clip": lambda: replace(
        prioritized(DS, LD, normalise="scale", scales={"DS": 30, "LD": 3}),
        privacy=Privacy(clip=AdaptiveClip(rate=0.9), noise=0.4, fraction=0.8, reproducible=True),
    ),
    "private search": lambda: replace(
        prioritized(DS, LD, normalise="scale", scales={"DS": 30, "LD": 3}),
        search=BoldestFirst(((2.0, 0.5), (1.0, 0.0))),
        privacy=Privacy(clip=0.5, noise=0.4, fraction=0.8, reproducible=True, search=SearchNoise(0.2)),
    ),
    "accuracy before size": lambda: prioritized(PARITY, DS, normalise="max"),
}


def task() -> Task:
    made = small_task(SIZES, (8,) * 6, ProbabilisticSoftmax(lr=1.0, epochs=3))
    kept = random_split((50,), 4)
    server = Samples(kept.x, kept.y, 3)
    sites = ("north", "north", "south", "south", "east", "west")
    return Task(
        replace(made.federation, validation=random_split((7,) * 6, 3), server=server, sites=sites), made.learner
    )


def records(fleet: Any, recipe: Recipe, rounds: int = 4) -> tuple[list[Record], np.ndarray]:
    model, _ = begin(recipe, fleet, fleet.server.first_model(1), 5)
    state, told = State(model), []
    for _ in range(rounds):
        selection = Schedule(rounds, ((0.5, 1), (1.0, 2)), (1, 3))
        state, record = play(
            state, recipe, fleet, selection=selection, seed=5, evaluate=True, objectives=[find_objective("accuracy")]
        )
        told.append(record)
    return told, state.model


def on_flower(made: Task) -> GridFleet:
    def half(context: Context) -> ClientHalf:
        return made.client(int(context.node_config["partition-id"]))

    grid = InProcessGrid(make_client_app(half), len(made.federation.names))
    fleet = GridFleet(grid, made.server())
    fleet.meet(len(made.federation.names))
    return fleet


@pytest.mark.parametrize("name", RECIPES)
def test_flowers_messages_give_the_same_bits(name: str):
    made, recipe = task(), RECIPES[name]()
    with LocalFleet(made) as local:
        ours, model = records(local, recipe)
    theirs, other = records(on_flower(made), recipe)
    assert model.tobytes() == other.tobytes()
    for one, two in zip(ours, theirs, strict=True):
        assert one.ids == two.ids
        assert one.weights is not None
        assert two.weights is not None
        assert one.weights.weights.tolist() == two.weights.weights.tolist()
        assert one.evaluation is not None
        assert two.evaluation is not None
        assert one.evaluation.correct.tolist() == two.evaluation.correct.tolist()
        assert one.evaluation.sizes.tolist() == two.evaluation.sizes.tolist()
        assert (one.bytes_down, one.bytes_up) == (two.bytes_down, two.bytes_up)
        assert one.rewards.verdicts == two.rewards.verdicts
        assert one.audit == two.audit
        assert one.notes == two.notes
        assert (one.aggregation and one.aggregation.results) == (two.aggregation and two.aggregation.results)
        assert (one.aggregation and one.aggregation.exchanges) == (two.aggregation and two.aggregation.exchanges)
