"""One round: who is drawn, how updates are combined, what is recorded; `test_round_spec` has whole rounds by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import CannedFleet, run_canned, small_task

from fedmerit import (
    DS,
    LD,
    MW,
    Backtracking,
    LocalModel,
    Recipe,
    TopShare,
    device_aware,
    fedavg,
    m2f,
    prioritized,
)
from fedmerit.core.collect.collect import InTime, Uniform, draw
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, SIMULATED_COMPUTATION
from fedmerit.core.host import Host
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.search.search import earn
from fedmerit.core.state import History, State
from fedmerit.core.types import Cohort, Evaluation, Groups, Replies
from fedmerit.core.updates import Updates
from fedmerit.fleet.local import LocalFleet

HALF, ALL = InTime(Uniform(0.5)), InTime(Uniform(1.0))


def drawn(clients: int, fraction: float, seed: int = 0, index: int = 1) -> tuple[int, ...]:
    return draw(fraction, clients, seed, "select", index)


@pytest.mark.parametrize(
    ("clients", "fraction", "number"),
    [
        (100, 0.1, 10),
        (371, 0.1, 37),
        (4168, 0.1, 417),
        (20, 0.01, 1),
        (1, 0.1, 1),
        (5, 0.5, 2),
        (7, 0.5, 4),
        (9, 1.0, 9),
    ],
)
def test_as_many_clients_as_the_fraction_says(clients: int, fraction: float, number: int):
    chosen = drawn(clients, fraction)
    assert (len(chosen), list(chosen)) == (number, sorted(set(chosen)))
    assert set(chosen) <= set(range(clients))


def test_the_draw_depends_on_seed_and_round_alone():
    assert drawn(100, 0.1, seed=3, index=5) == drawn(100, 0.1, seed=3, index=5)
    assert drawn(100, 0.1, seed=3, index=5) != drawn(100, 0.1, seed=3, index=6)
    assert drawn(100, 0.1, seed=3, index=5) != drawn(100, 0.1, seed=4, index=5)


def test_a_record_has_the_whole_round():
    task = small_task()
    state = State(task.learner.start(0))
    with LocalFleet(task) as fleet:
        later, record = run_round(state, prioritized(DS, MW), Host.of(fleet), HALF, seed=1)
    length = state.model.nbytes
    assert (record.index, record.priority, len(record.ids)) == (1, ("DS", "MW"), 2)
    assert record.facts["samples"].tolist() == [len(task.federation.samples(i)) for i in record.ids]
    assert (record.bytes_down, record.bytes_up) == (2 * length, 2 * length)
    assert set(record.seconds) == {"train", "check", "group", "weigh", "aggregate", "reward", "evaluate"}
    assert record.weights.raw.shape == (2, 2)
    assert later.history.participations == dict.fromkeys(record.ids, 1)


def test_rewards_of_layers_know_the_layers():
    """Eight of fourteen entries: three of the layer of six, five of that of eight."""
    updates = np.stack([np.arange(14.0)] * 2).astype(np.float32)
    host = Host.of(CannedFleet(updates, [{"samples": 20.0}, {"samples": 10.0}]))
    recipe, layers = m2f(DATA_RATIO, reward=TopShare("tanh")), (6, 8)
    by_layer = replace(host, layers=lambda length: tuple((width,) for width in layers))
    _, record = run_round(State(np.zeros(14, np.float32)), recipe, by_layer, InTime(Uniform(1.0)), 0, evaluate=False)
    places = record.rewards.rewards[1].places
    assert np.bincount(np.searchsorted(np.cumsum(layers), places, side="right")).tolist() == [3, 5]


def test_the_initial_phase_adds_the_mean_of_the_updates():
    fleet = CannedFleet(np.array([[1, 0], [0, 2], [5, 4]], np.float32), [{"samples": n} for n in (10, 30, 60)])
    nobody = CannedFleet(np.empty((0, 2), np.float32), [], failed={0: "away", 1: "away"})
    for recipe, clients, model, text in (
        (m2f(initial=1.0), fleet, [3, 3], ["3 clients trained the first model: [0, 1, 2]"]),
        (m2f(initial=0.0), fleet, [1, 1], []),
        (m2f(initial=1.0), nobody, [1, 1], ["0 clients trained the first model: []"]),
    ):
        state, notes = initial_state(recipe, Host.of(clients), np.ones(2, np.float32), 0)
        assert state.model == pytest.approx(model)
        assert [note.text for note in notes] == text


def test_the_initial_phase_is_round_0_and_has_its_own_draw():
    requests = []

    class Asked(CannedFleet):
        def train(self, index: int, downloads: Any, *rest: Any) -> Replies:
            requests.append((index, tuple(downloads)))
            return Replies((), Updates(np.empty((0, 2), np.float32)), ())

    fleet = Asked(np.empty((0, 2), np.float32), [{"samples": 1}] * 20)
    for seed in range(3):
        initial_state(m2f(initial=0.25), Host.of(fleet), np.ones(2, np.float32), seed)
    assert requests == [(0, draw(0.25, 20, seed, "initial", 0)) for seed in range(3)]


@dataclass(frozen=True)
class Reporting(CannedFleet):
    """Clients whose replies have these fields too."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    def train(self, *request: Any) -> Replies:
        return replace(super().train(*request), **self.fields)


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        (fedavg(), 0),
        # two judges: the model and an aggregate of two values
        (device_aware(DS, LD, normalise="max"), 2 * 2 * 2 * 4),
    ],
    ids=["fedavg", "search"],
)
def test_bytes_are_those_of_training_and_of_searches(recipe: Recipe, more: int):
    facts = [{"samples": 1, "labels": 3}, {"samples": 4, "labels": 1}]
    _, record = run_canned(
        recipe, Reporting(np.eye(2, dtype=np.float32), facts, fields={"bytes_down": 1000, "bytes_up": 70})
    )
    assert (record.bytes_down, record.bytes_up) == (1000 + more, 70)


@pytest.mark.parametrize(
    ("recipe", "fields", "facts"),
    [
        (fedavg(), {}, {}),
        (prioritized("Computation"), {"seconds": {0: 2.0, 1: 4.0}}, {"clock": [2, 4]}),
    ],
)
def test_the_server_knows_what_its_recipe_asks_for_and_no_more(recipe: Recipe, fields: Any, facts: Any):
    """Round 5; a model of half a megabyte goes down, clients train for a second, and half a megabyte comes up."""
    fleet = Reporting(np.ones((2, 125_000), np.float32), [{"samples": 10, "seconds": 1}] * 2, fields=fields)
    _, record = run_canned(recipe, fleet, State(np.zeros(125_000, np.float32), History(4)))
    assert {name: column.tolist() for name, column in record.facts.items()} == {"samples": [10, 10], **facts}


def test_the_server_knows_the_epochs_that_it_asked_for():
    recipe = prioritized(SIMULATED_COMPUTATION, DS, normalise="max")
    with LocalFleet(small_task()) as fleet:
        some = InTime(lambda index, clients, seed: {0: 3, 2: None})
        _, record = run_round(State(fleet.server.first_model(1)), recipe, Host.of(fleet), some, 1, evaluate=False)
    assert record.facts["epochs"].tolist() == [3, 1], "as the task says counts as 1"


class Rated(CannedFleet):
    """Clients that have 1 of 9 rows right with any model of the server's, 5 with their own; requests are counted."""

    asked: ClassVar[list[str]] = []

    def evaluate(self, models: Any, on: str = "test", clients: Any = None, *, losses: bool = False) -> Any:
        self.asked.append(on)
        return [Evaluation(np.full(2, 1), np.full(2, 9)) for _ in models]

    def evaluate_personal(self, model: np.ndarray, on: str = "test") -> Evaluation:
        self.asked.append("personal")
        return Evaluation(np.full(2, 5), np.full(2, 9))


@pytest.mark.parametrize(
    ("recipe", "asked", "right"),
    [
        (fedavg(), ["test"], 1),
        (device_aware(DS, LD, normalise="max", search=Backtracking(adjust_on="test")), ["test"], 1),
        (device_aware(DS, LD, normalise="max", search=Backtracking()), ["validation", "test"], 1),
        (m2f(PARTICIPATION, DATA_RATIO), ["personal"], 5),
        (Recipe((DS,), models=LocalModel()), ["personal"], 5),
    ],
    ids=["one model", "known from the search", "searched on other rows", "personal", "local"],
)
def test_models_are_tested_once_and_where_they_are(recipe: Recipe, asked: list[str], right: int):
    fleet = Rated(np.eye(2, dtype=np.float32), [{"samples": 1, "labels": 3}, {"samples": 4, "labels": 1}])
    fleet.asked.clear()
    _, record = run_canned(recipe, fleet, evaluate=True)
    assert fleet.asked == asked
    assert record.evaluation.correct.tolist() == [right, right]


def test_pair_distances_are_kept_where_a_criterion_uses_them():
    fleet = CannedFleet(np.array([[1, 0], [0, 2], [3, 0]], np.float32), [{"samples": 5.0}] * 3)
    for recipe, ids in ((prioritized(DS, SimilarityFilter()), (0, 1, 2)), (fedavg(), ())):
        state = None
        for index in (1, 2):
            state, _ = run_canned(recipe, fleet, state)
            pairs = state.history.pairs
            assert (pairs.ids, pairs.counts.tolist()) == (ids, [[index] * len(ids)] * len(ids))
        if ids:
            assert pairs.mean(ids).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_stages_are_reported_as_they_come():
    stages: list[tuple[Any, ...]] = []
    fleet = CannedFleet(np.eye(2, dtype=np.float32), [{"samples": 5.0}] * 2)
    for evaluate in (False, True):
        state = State(np.zeros(2, np.float32), history=History(3))
        _, record = run_canned(fedavg(), fleet, state, evaluate=evaluate, on_stage=lambda *one: stages.append(one))
        assert (record.evaluation is not None) == evaluate
    first = [(4, "train", (0, 1)), (4, "aggregate", ())]
    assert stages == [*first, *first, (4, "evaluate", ())]


def test_one_group_is_no_group():
    """The notes name groups where there are several, and weights are the same bits as without any."""
    facts = {"samples": np.array([3.0, 1.0]), "labels": np.array([2.0, 2.0])}
    cohort = Cohort(1, (0, 1), Updates(np.ones((2, 2), np.float32)), facts)
    recipe = prioritized(LD, DS, normalise="max")
    alone, one = (earn(recipe, cohort, History(), groups) for groups in (None, Groups(np.zeros(2, np.intp))))
    assert alone.notes
    assert (one.notes, one.weights.tobytes()) == (alone.notes, alone.weights.tobytes())
    two = earn(recipe, cohort, History(), Groups(np.array([1, 0])))
    assert two.weights.tolist() == [1, 1]
