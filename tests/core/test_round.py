"""One round: who is drawn, how updates are combined, what is recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import CannedFleet, ProbabilisticSoftmax, SoftmaxLearner, small_task

from fedmerit import DS, LD, MW, Recipe, device_aware, fedavg, ifca, m2f, prioritized
from fedmerit.core.collect.late import Delays, Wait
from fedmerit.core.collect.selection import Uniform, draw
from fedmerit.core.criteria.computation import SIMULATED_COMPUTATION
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION, Family
from fedmerit.core.host import Server
from fedmerit.core.models.choices import evaluate_chosen, models_in
from fedmerit.core.models.grouping import Groups, OneGroup
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import TopShare, Whole
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import begin, play, server_facts
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.server.aggregation import earn
from fedmerit.core.state import State
from fedmerit.core.types import Cohort, Evaluation, History, Replies, Verdict
from fedmerit.core.updates import Updates
from fedmerit.fleet.local import LocalFleet


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
    assert len(chosen) == number
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(range(clients))


def test_the_draw_depends_on_seed_and_round_alone():
    assert drawn(100, 0.1, seed=3, index=5) == drawn(100, 0.1, seed=3, index=5)
    assert drawn(100, 0.1, seed=3, index=5) != drawn(100, 0.1, seed=3, index=6)
    assert drawn(100, 0.1, seed=3, index=5) != drawn(100, 0.1, seed=4, index=5)


def test_every_client_is_drawn_as_often_as_any_other():
    counts = Counter(client for index in range(2000) for client in drawn(10, 0.3, index=index))
    assert min(counts.values()) > 500
    assert max(counts.values()) < 700
    assert len(counts) == 10


def test_the_model_moves_by_the_weighted_mean_of_the_updates():
    updates = np.array([[1, 0], [0, 2], [4, 4]], dtype=np.float32)
    fleet = CannedFleet(updates, [{"samples": n} for n in (10, 30, 60)])
    state, record = play(
        State(np.array([1, 1], dtype=np.float32)), fedavg(), fleet, selection=Uniform(1), seed=0, evaluate=True
    )
    assert record.weights is not None
    assert record.weights.weights == pytest.approx([0.1, 0.3, 0.6])
    assert state.model == pytest.approx([1 + 0.1 + 2.4, 1 + 0.6 + 2.4])
    assert state.model.dtype == np.float32


def test_long_updates_are_combined_and_measured_as_short_ones():
    rows = np.random.default_rng(0).normal(size=(5, 50_000)).astype(np.float32)
    updates = Updates(rows).keep(np.array([3, 0, 4]))
    kept, weights = rows[[3, 0, 4]].astype(np.float64), np.array([0.2, 0.3, 0.5])
    assert len(updates) == 3
    np.testing.assert_allclose(updates.combine(weights), weights @ kept, rtol=1e-4, atol=1e-6)
    diverged = MW(Cohort(1, (0, 3, 4), updates, {}), History())
    np.testing.assert_allclose(diverged, 1 / np.sqrt(np.linalg.norm(kept, axis=1) + 1), rtol=1e-6)


def test_a_record_tells_the_whole_round():
    task = small_task()
    state = State(task.learner.start(0))
    with LocalFleet(task) as fleet:
        later, record = play(state, prioritized(DS, MW), fleet, selection=Uniform(0.5), seed=1, evaluate=True)
    length = state.model.nbytes
    assert record.index == 1
    assert record.priority == ("DS", "MW")
    assert len(record.ids) == 2
    assert record.facts["samples"].tolist() == [len(task.federation.samples(i)) for i in record.ids]
    assert (record.bytes_down, record.bytes_up) == (2 * length, 2 * length)
    assert set(record.seconds) == {"train", "check", "group", "weigh", "aggregate", "reward", "evaluate"}
    assert record.weights is not None
    assert record.weights.raw.shape == (2, 2)
    assert later.history == History(1, dict.fromkeys(record.ids, 1))


def test_history_counts_in_how_many_rounds_a_client_took_part():
    state, counts = State(small_task().learner.start(0)), Counter()
    with LocalFleet(small_task()) as fleet:
        for _ in range(5):
            state, record = play(state, fedavg(), fleet, selection=Uniform(0.5), seed=1, evaluate=False)
            counts.update(record.ids)
    assert state.history == History(5, dict(counts))


@dataclass(frozen=True)
class Newcomers:
    """A criterion of one's own: from the history, without any fact."""

    name: str = "newcomers"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "1 / (1 + rounds taken part in)"

    def __call__(self, round: Cohort, history: History) -> np.ndarray:
        return np.array([1 / (1 + history.participations.get(client, 0)) for client in round.ids])


def test_a_criterion_of_ones_own():
    fleet = CannedFleet(np.eye(2, dtype=np.float32), [{"samples": 5}, {"samples": 5}])
    state = State(np.zeros(2, dtype=np.float32), history=History(3, {1: 3}))
    _, record = play(
        state, prioritized(Newcomers(), normalise="none"), fleet, selection=Uniform(1), seed=0, evaluate=False
    )
    assert record.priority == ("newcomers",)
    assert record.weights is not None
    assert record.weights.weights == pytest.approx([0.8, 0.2])


class Personal(CannedFleet):
    """Keeps what it was sent."""

    def send_rewards(self, index: int, rewards: object, acceptance: object) -> dict[int, object]:
        self.__dict__["sent"] = rewards
        return {}


def test_rewards_of_layers_know_the_layers():
    """Twelve and two entries, weights and biases: half of the aggregate is half of each."""
    updates = np.stack([np.arange(14.0)] * 2).astype(np.float32)
    fleet = Personal(updates, [{"samples": 10.0}, {"samples": 10.0}], length=6)
    recipe = m2f(PARTICIPATION, DATA_RATIO, initial=0.0, reward=TopShare(scope="layer"))
    play(State(np.zeros(14, np.float32)), recipe, fleet, selection=Uniform(1), seed=0, evaluate=False)
    layers = fleet.server.layers(14)
    ends = np.cumsum(layers)
    for reward in fleet.__dict__["sent"].values():
        layer = np.searchsorted(ends, reward.places, side="right")
        assert np.bincount(layer).tolist() == [length // 2 for length in layers]


def test_the_initial_phase_adds_the_mean_of_the_updates():
    updates = np.array([[1, 0], [0, 2], [5, 4]], dtype=np.float32)
    fleet = CannedFleet(updates, [{"samples": n} for n in (10, 30, 60)])
    model = np.ones(2, np.float32)
    begun, who = begin(m2f(initial=1.0), fleet, model, 0)
    assert begun == pytest.approx([3, 3])
    assert who == (0, 1, 2)
    assert begin(m2f(initial=0.0), fleet, model, 0) == (model, ())
    nobody = CannedFleet(np.empty((0, 2), np.float32), [], failed={0: "away", 1: "away"})
    assert begin(m2f(initial=1.0), nobody, model, 0) == (model, ())


def test_the_initial_phase_is_round_0_and_draws_for_itself():
    asked = []

    class Asked(CannedFleet):
        def train(self, index: int, downloads: object, *rest: object) -> Replies:
            asked.append((index, tuple(downloads)))  # type: ignore[call-overload]
            return Replies((), Updates(np.empty((0, 2), np.float32)), ())

    fleet = Asked(np.empty((0, 2), np.float32), [{"samples": 1}] * 20)
    for seed in range(3):
        begin(m2f(initial=0.25), fleet, np.ones(2, np.float32), seed)
    assert asked == [(0, draw(0.25, 20, seed, "initial", 0)) for seed in range(3)]


def test_objectives_are_measured_where_all_share_a_model():
    with LocalFleet(small_task()) as fleet:
        start = State(fleet.server.first_model(1))
        settings = {"selection": Uniform(1.0), "seed": 1, "objectives": (find_objective("accuracy"),)}
        _, record = play(start, fedavg(), fleet, evaluate=True, **settings)  # type: ignore[arg-type]
        _, without = play(start, fedavg(), fleet, evaluate=False, **settings)  # type: ignore[arg-type]
    assert record.evaluation is not None
    assert [record.audit[client]["accuracy"] for client in range(4)] == pytest.approx(record.evaluation.local)
    assert without.audit == {}


class Counted(CannedFleet):
    """Clients whose models took 1000 bytes down and 70 up; they take any reward."""

    def train(self, *asked: Any) -> Replies:
        return replace(super().train(*asked), bytes_down=1000, bytes_up=70)

    def send_rewards(self, index: int, rewards: object, acceptance: object) -> dict[int, Verdict]:
        return {}


def test_bytes_are_those_of_models_of_searches_and_of_rewards():
    updates, facts = np.eye(2, dtype=np.float32), [{"samples": 1, "labels": 3}, {"samples": 4, "labels": 1}]

    def bytes_of(recipe: Recipe) -> tuple[int, int]:
        start, fleet = State(np.zeros(2, np.float32)), Counted(updates, facts)
        _, record = play(start, recipe, fleet, selection=Uniform(1.0), seed=0, evaluate=False)
        return record.bytes_down, record.bytes_up

    assert bytes_of(fedavg()) == (1000, 70)
    searched = device_aware(DS, LD, normalise="max", search=Backtracking(orders="all"))
    assert bytes_of(searched) == (1000 + 2 * 3 * 2 * 4, 70), "two judges: the model and two aggregates of two values"
    rewarded = replace(m2f(PARTICIPATION, DATA_RATIO, initial=0.0, reward=Whole()), grouping=OneGroup())
    assert bytes_of(rewarded) == (1000 + 2 * 2 * 4, 70), "an aggregate of two values to each"


def test_who_answers_an_earlier_round_trained_its_epochs():
    """In round r everybody is asked for r epochs. All answer after 3 seconds, and the first half is waited for."""
    delays = Delays(0.0, 1.0, Wait(0.5, 60.0, over=2.0, late="use"), usual=3.0)
    recipe = prioritized(SIMULATED_COMPUTATION, DS, normalise="max")

    def all_of(index: int, clients: int, seed: int) -> dict[int, int | None]:
        return dict.fromkeys(range(clients), index)

    with LocalFleet(small_task()) as fleet:
        state = State(fleet.server.first_model(1))
        state, first = play(state, recipe, fleet, selection=all_of, seed=1, evaluate=False, delays=delays)
        _, second = play(state, recipe, fleet, selection=all_of, seed=1, evaluate=False, delays=delays)
    assert first.facts["epochs"].tolist() == [1, 1]
    assert set(second.facts["epochs"]) == {1, 2}
    assert second.facts["epochs"].tolist() == (2 - second.facts["staleness"]).tolist()


class Rated(CannedFleet):
    """Clients that have 1 of 9 rows right with any model of the server's, 5 with their own; askings are counted."""

    asked: ClassVar[list[str]] = []

    def evaluate(self, models: Any, on: str = "test", clients: Any = None, *, losses: bool = False) -> Any:
        self.asked.append(on)
        return [Evaluation(np.full(2, 1), np.full(2, 9)) for _ in models]

    def evaluate_personal(self, model: np.ndarray, on: str = "test") -> Evaluation:
        self.asked.append("personal")
        return Evaluation(np.full(2, 5), np.full(2, 9))

    def send_rewards(self, index: int, rewards: object, acceptance: object) -> dict[int, Verdict]:
        return {}


@pytest.mark.parametrize(
    ("recipe", "asked", "right"),
    [
        (fedavg(), ["test"], 1),
        (device_aware(DS, LD, normalise="max", search=Backtracking(orders="all", adjust_on="test")), ["test"], 1),
        (device_aware(DS, LD, normalise="max", search=Backtracking(orders="all")), ["validation", "test"], 1),
        (m2f(PARTICIPATION, DATA_RATIO, initial=0.0), ["personal"], 5),
        (Recipe((DS,), beside=Beside()), ["personal"], 5),
    ],
    ids=["one model", "known from the search", "searched on other rows", "personal", "beside"],
)
def test_models_are_tested_once_and_where_they_are(recipe: Recipe, asked: list[str], right: int):
    facts = [{"samples": 1, "labels": 3}, {"samples": 4, "labels": 1}]
    fleet = Rated(np.eye(2, dtype=np.float32), facts)
    fleet.asked.clear()
    _, record = play(State(np.zeros(2, np.float32)), recipe, fleet, selection=Uniform(1.0), seed=0, evaluate=True)
    assert fleet.asked == asked
    assert record.evaluation is not None
    assert record.evaluation.correct.tolist() == [right, right]


def test_of_several_models_each_client_is_tested_on_its_own():
    with LocalFleet(small_task(learner=ProbabilisticSoftmax())) as fleet:
        start = State(fleet.server.first_model(1))
        after, record = play(start, ifca(2), fleet, selection=Uniform(1.0), seed=3, evaluate=True)
        expected, _ = evaluate_chosen(after, fleet, ())
        first = fleet.evaluate(models_in(after)[:1])[0]
    assert record.evaluation is not None
    assert record.evaluation.correct.tolist() == expected.correct.tolist() != first.correct.tolist()


def test_who_met_whom_is_kept_where_a_criterion_goes_by_it():
    fleet = CannedFleet(np.array([[1, 0], [0, 2], [3, 0]], np.float32), [{"samples": 5.0}] * 3)
    for recipe, met in ((prioritized(DS, Company()), (0, 1, 2)), (fedavg(), ())):
        state = State(np.zeros(2, np.float32))
        for index in (1, 2):
            state, _ = play(state, recipe, fleet, selection=Uniform(1), seed=0, evaluate=False)
            assert state.distances.ids == met
            assert state.distances.counts.tolist() == [[index] * len(met)] * len(met)
    known, _ = play(
        State(np.zeros(2, np.float32)), prioritized(DS, Company()), fleet, selection=Uniform(1), seed=0, evaluate=False
    )
    assert known.distances.mean((0, 1, 2)).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_the_server_knows_what_its_recipe_asks_for_and_no_more():
    replies = Replies((0, 2), Updates(np.zeros((2, 250_000), np.float32)), ({}, {}), seconds={0: 2.0, 2: 4.0})
    server = Server(("a", "b", "c"), SoftmaxLearner(), sites=("x", "y", "x"))
    chosen = {0: 3, 2: None}

    def facts(recipe: Recipe, chosen: dict[int, int | None], **more: object) -> object:
        return server_facts(recipe, 5, chosen, replace(replies, **more), server)  # type: ignore[arg-type]

    assert facts(fedavg(), {0: None, 2: None}) == {}
    assert facts(fedavg(), chosen) == {"epochs": {0: 3.0, 2: 1.0}}
    assert facts(fedavg(), {}, started={2: 3}) == {"staleness": {0: 0, 2: 2}}
    assert facts(prioritized("Staleness"), {}) == {"staleness": {0: 0, 2: 0}}
    assert facts(replace(fedavg(), cap_group=0.5), {}) == {"site": {0: 0, 1: 1, 2: 0}}
    assert facts(prioritized("Connection"), {}) == {"link": {0: 1, 2: 0.5}}, "a megabyte there and back"
    assert "clock" in facts(prioritized("Computation"), {})  # type: ignore[operator]
    quick = replace(server, links=(7.0, 8.0, 9.0))
    assert server_facts(prioritized("Connection"), 5, {}, replies, quick) == {"link": {0: 7, 1: 8, 2: 9}}


def test_stages_are_told_as_they_come():
    heard: list[tuple[int, str, tuple[int, ...]]] = []
    fleet = CannedFleet(np.eye(2, dtype=np.float32), [{"samples": 5.0}] * 2)
    for evaluate in (False, True):
        state = State(np.zeros(2, np.float32), history=History(3))
        _, record = play(
            state,
            fedavg(),
            fleet,
            selection=Uniform(1),
            seed=0,
            evaluate=evaluate,
            on_stage=lambda *one: heard.append(one),
        )
        assert (record.evaluation is not None) == evaluate
    first, second = [(4, "train", (0, 1)), (4, "settle", ())], (4, "evaluate", ())
    assert heard == [*first, *first, second]


def test_one_group_is_no_group():
    """The notes name groups where there are several, and weights are the same bits as without any."""
    facts = {"samples": np.array([3.0, 1.0]), "labels": np.array([2.0, 2.0])}
    cohort = Cohort(1, (0, 1), Updates(np.ones((2, 2), np.float32)), facts)
    recipe = prioritized(LD, DS, normalise="max")
    alone, one = (earn(recipe, cohort, History(), groups) for groups in (None, Groups(np.zeros(2, np.intp))))
    assert alone.notes
    assert one.notes == alone.notes
    assert one.weights.tobytes() == alone.weights.tobytes()
    two = earn(recipe, cohort, History(), Groups(np.array([1, 0])))
    assert two.weights.tolist() == [1, 1]
