"""Every recipe on every fleet gives the same weights and models; here the local fleet and Flower's messages."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fleets import on_flower
from helpers import ProbabilisticSoftmax, random_split, small_task

from fedmerit import (
    DS,
    LD,
    MW,
    Adam,
    Backtracking,
    Cap,
    Claims,
    Clip,
    InTime,
    Momentum,
    PrivateSum,
    Recipe,
    Samples,
    Server,
    Task,
    TopShare,
    Validated,
    adaptive,
    cosine_rewards,
    device_aware,
    fedavg,
    fedval,
    finetuned,
    ifca,
    last_answers,
    m2f,
    prioritized,
    private,
    robust,
    scale,
    standalone,
)
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import NormInlier
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, SIMULATED_COMPUTATION
from fedmerit.core.host import Fleet, Host
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.server.aggregators import NNM, CoordinateMedian, GeometricMedian, TrimmedMean
from fedmerit.core.stages.arc import Arc
from fedmerit.core.state import Record
from fedmerit.fleet.local import LocalFleet

SIZES = (6, 40, 9, 25, 30, 14)
ACCURACY = find_objective("accuracy")
BY_M2F = (PARTICIPATION, SIMULATED_COMPUTATION, DATA_RATIO)
THREE = prioritized(DS, LD, MW, normalise="max")
SCALED = prioritized(DS, LD, normalise=scale({"DS": 30, "LD": 3}))
RECIPES: dict[str, Callable[[], Recipe]] = {
    "fedavg": fedavg,
    "prioritized": lambda: THREE,
    "momentum": lambda: replace(THREE, server=Server(optimizer=Momentum(0.5))),
    "adam and a search": lambda: replace(device_aware(DS, LD, MW, normalise="max"), server=Server(optimizer=Adam())),
    "median and clip": lambda: replace(THREE, stages=(Clip(),), server=Server(CoordinateMedian())),
    "nnm and a search": lambda: replace(device_aware(DS, LD, normalise="max"), server=Server(NNM(TrimmedMean()))),
    "geometric median after ARC": lambda: replace(fedavg(), stages=(Arc(),), server=Server(GeometricMedian())),
    "robust criteria": lambda: prioritized(Alignment(), NormInlier()),
    "robust": robust,
    "robust with server rows": lambda: robust(server_rows=True),
    "last answers": last_answers,
    "similarity": lambda: replace(prioritized(SimilarityFilter(), DS), server=Server(TrimmedMean())),
    "fedval by gain": lambda: fedval("accuracy", rank="top", marginal=True),
    "device_aware": lambda: device_aware(DS, LD, MW, normalise="max", search=Backtracking(tolerance=0.0)),
    "adaptive": lambda: adaptive(LD, DS),
    "m2f, keep": lambda: m2f(*BY_M2F, initial=0.3),
    "m2f, reset": lambda: m2f(*BY_M2F, training="reset", initial=0.0),
    "cosine_rewards, finished alone": lambda: cosine_rewards(until=3),
    "standalone": standalone,
    "finetuned": lambda: finetuned(until=2),
    "ifca": lambda: replace(ifca(3, warmup_rounds=1), server=Server(optimizer=Momentum(0.5))),
    "m2f, the best gets all": lambda: m2f(DATA_RATIO, reward=TopShare("max"), until=2, initial=0.0),
    "fedval": lambda: fedval("accuracy", "balanced_accuracy", rank="borda"),
    "capped": lambda: replace(prioritized(DS, LD, normalise="max"), limits=(Cap(1.2),)),
    "capped claims": lambda: replace(prioritized(LD, DS, normalise="max"), stages=(Claims(k=1.2),), limits=(Cap(1.5),)),
    "reputation": lambda: prioritized(Reputation(MW, half_life=2), DS, normalise="max"),
    "capped groups": lambda: replace(m2f(*BY_M2F, initial=0.0), limits=(Cap(1.3),)),
    "private": lambda: private(SCALED, PrivateSum(0.4, 0.8, clip=0.5, reproducible=True)),
    "accuracy before size": lambda: prioritized(Validated(ACCURACY), DS, normalise="max"),
}


def task() -> Task:
    made = small_task(SIZES, (8,) * 6, ProbabilisticSoftmax(lr=1.0, epochs=3))
    kept = random_split((50,), 4)
    server = Samples(kept.x, kept.y, 3)
    return Task(replace(made.federation, validation=random_split((7,) * 6, 3), server=server), made.learner)


def records(fleet: Fleet, recipe: Recipe, rounds: int = 4) -> tuple[list[Record], np.ndarray]:
    host, collect = Host.of(fleet, rounds), InTime(Schedule(rounds, ((0.5, 1), (1.0, 2)), (1, 3)))
    state, _ = initial_state(recipe, host, fleet.server.first_model(1), 5)
    found = []
    for _ in range(rounds):
        state, record = run_round(state, recipe, host, collect, seed=5, objectives=[ACCURACY])
        found.append(record)
    return found, state.model


@pytest.mark.parametrize("name", RECIPES)
def test_flowers_messages_give_the_same_bits(name: str):
    made, recipe = task(), RECIPES[name]()
    with LocalFleet(made) as local:
        ours, model = records(local, recipe)
    theirs, other = records(on_flower(made), recipe)
    assert model.tobytes() == other.tobytes()
    for one, two in zip(ours, theirs, strict=True):
        assert one.ids == two.ids
        assert one.weights.weights.tolist() == two.weights.weights.tolist()
        assert one.evaluation.correct.tolist() == two.evaluation.correct.tolist()
        assert one.evaluation.sizes.tolist() == two.evaluation.sizes.tolist()
        assert (one.bytes_down, one.bytes_up) == (two.bytes_down, two.bytes_up)
        assert one.rewards.verdicts == two.rewards.verdicts
        assert one.audit == two.audit
        assert one.notes == two.notes
        assert (one.search.results, one.search.exchanges) == (two.search.results, two.search.exchanges)
