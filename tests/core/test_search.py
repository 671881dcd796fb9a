"""Searches on numbers alone: which orders are visited, in which order, where they stop; and which count as the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import CB, DS, IS, LC, LD, MW, Prioritized, Sharpness, device_aware, fedavg
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment, Job
from fedmerit.core.round import aggregate_round
from fedmerit.core.search.backtracking import Answer, Backtracking
from fedmerit.core.search.evaluator import Mixtures
from fedmerit.core.search.search import Candidate, Choice, Weighting, distinct, kendall, remember_choice
from fedmerit.core.seeds import Draws
from fedmerit.core.server.optimizers import Adam, HeavyBall, Momentum
from fedmerit.core.server.server import SGD, Batch, Server, ServerOptimizer
from fedmerit.core.state import Clock, History, State, View
from fedmerit.core.types import EMPTY, Cohort, Evaluation, Model, Own, Replies, one_group
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import Weights
from fedmerit.errors import ConfigError

OWN = Weighting(("DS", "LD", "MW"), Prioritized(), "sum")
ALL = Backtracking().weightings(OWN)
Short = dict[str, float]


def short(way: Weighting) -> str:
    return "".join(name[0] for name in way.priority)


def play(
    search: Backtracking, qualities: Short, reference: float, current: Weighting = OWN
) -> tuple[str, list[list[str]]]:
    """The order chosen, and the orders asked about, exchange by exchange."""
    exchanges: list[list[str]] = []

    def ask(ways: list[Weighting]) -> list[Answer]:
        exchanges.append([short(way) for way in ways])
        return [Answer(qualities[short(way)], qualities[short(way)] >= reference) for way in ways]

    visited = search.visit(current, ALL, np.random.default_rng(3))
    return short(search.pick(visited, ask)), exchanges


REST = ["DML", "LDM", "LMD", "MDL", "MLD"]
WORSE = {"DLM": 0.50, "DML": 0.55, "LDM": 0.60, "LMD": 0.40, "MDL": 0.70, "MLD": 0.65}


def test_all_orders_are_there_and_the_own_one_is_first():
    assert {way.priority for way in ALL} == set(permutations(("DS", "LD", "MW")))
    assert ALL[0] == OWN


@pytest.mark.parametrize(
    ("orders", "reference", "chosen", "exchanges"),
    [
        ("kendall", 0.50, "DLM", [["DLM"]]),  # the current order is not worse: nothing else is asked about
        ("kendall", 0.55, "DML", [["DLM"], REST]),
        ("kendall", 0.60, "LDM", [["DLM"], REST]),
        ("kendall", 0.70, "MDL", [["DLM"], REST]),
        ("kendall", 0.90, "MDL", [["DLM"], REST]),
        ("lexicographic", 0.61, "MDL", [["DLM"], REST]),
        ("all", 0.10, "MDL", [["DLM", *REST]]),
    ],
)
def test_the_current_order_is_asked_about_first_and_then_all_that_are_left(orders, reference, chosen, exchanges):
    assert play(Backtracking(orders=orders), WORSE, reference) == (chosen, exchanges)


def test_nearest_first_from_another_order():
    """From MW > LD > DS: one swap away LMD and MDL, two away LDM and DML, three away DLM; ties by name."""
    current = next(way for way in ALL if short(way) == "MLD")
    visited = Backtracking().visit(current, ALL, np.random.default_rng(0))
    assert [short(way) for way in visited] == ["MLD", "LMD", "MDL", "DML", "LDM", "DLM"]
    by_name = Backtracking(orders="lexicographic").visit(current, ALL, np.random.default_rng(0))
    assert [short(way) for way in by_name] == ["MLD", "DLM", "DML", "LDM", "LMD", "MDL"]


def test_a_random_order_begins_with_the_current_one_and_follows_the_seed():
    search = Backtracking(orders="random")
    tours = [[short(way) for way in search.visit(OWN, ALL, np.random.default_rng(seed))] for seed in (1, 1, 2, 3, 4)]
    assert tours[0] == tours[1]
    assert len(set(map(tuple, tours))) > 1
    assert all(tour[0] == "DLM" and sorted(tour) == sorted(map(short, ALL)) for tour in tours)


def test_the_least_bad_and_on_a_tie_the_nearest():
    level = dict.fromkeys(WORSE, 0.4) | {"LDM": 0.5, "MDL": 0.5}
    assert play(Backtracking(), level, 0.9)[0] == "LDM"
    assert play(Backtracking(orders="all"), dict.fromkeys(WORSE, 0.4), 0.9)[0] == "DLM"


def test_where_nobody_answers_the_current_order_stays():
    nobody = dict.fromkeys(WORSE, float("nan"))
    for orders in ("kendall", "all"):
        assert play(Backtracking(orders=orders), nobody, 0.5)[0] == "DLM"


accuracies = st.lists(st.integers(0, 20).map(lambda k: k / 20), min_size=6, max_size=6)


@given(accuracies, st.integers(0, 20).map(lambda k: k / 20), st.sampled_from(["kendall", "lexicographic", "random"]))
def test_the_first_good_one_is_chosen_or_the_best(values, reference, orders):
    """As if one order were tried after the other [DAFL, Alg. 1]."""
    qualities, search = dict(zip(WORSE, values, strict=True)), Backtracking(orders=orders)
    visited = [short(way) for way in search.visit(OWN, ALL, np.random.default_rng(3))]
    good = [order for order in visited if qualities[order] >= reference]
    assert play(search, qualities, reference)[0] == (good or [max(visited, key=lambda order: qualities[order])])[0]


@given(st.permutations("abcd"), st.permutations("abcd"), st.permutations("abcd"))
def test_kendalls_distance_is_one(one, other, third):
    assert (kendall(one, other) == 0) == (one == other)
    assert kendall(one, other) == kendall(other, one) <= 6
    assert kendall(one, third) <= kendall(one, other) + kendall(other, third)


def test_near_weightings_of_one_step_count_as_the_first_of_them():
    weightings = [np.array(pair) for pair in ([0.5, 0.5], [0.505, 0.495], [0.6, 0.4], [0.5, 0.5], [0.595, 0.405])]
    assert distinct(weightings, 0.01, [None] * 5) == [0, 0, 2, 0, 2]
    assert distinct(weightings, 0.0, [None] * 5) == [0, 1, 2, 0, 4]
    assert distinct(weightings, 1.0, [None] * 5) == [0] * 5
    short, long = HeavyBall(1.0), HeavyBall(2.0)
    assert distinct(weightings, 1.0, [short, long, short, long, None]) == [0, 1, 0, 1, 4]


def test_too_many_criteria_to_go_through_all_orders():
    with pytest.raises(ConfigError, match=r"at most 6 criteria \(got 7\)"):
        device_aware(DS, LD, MW, CB, LC, IS, Sharpness)


@dataclass
class Judges:
    """Clients of ten rows, of which some are right; keeps the models and clients of each exchange."""

    number: int
    right: Sequence[int] | None = None
    models: list[Sequence[Model]] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)

    def judges(self) -> list[int]:
        return list(range(self.number))

    def evaluate(
        self, models: Sequence[Model], on: str = "test", clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        self.models.append(models)
        self.asked.append(self.judges() if clients is None else list(clients))
        sizes = np.where(np.isin(np.arange(self.number), self.asked[-1]), 10, 0)
        return [Evaluation(np.where(sizes, self.answers(model), 0), sizes) for model in models]

    def answers(self, model: Model) -> np.ndarray:
        """Rows that each client has right: as written down for the candidate that the model is, else 5."""
        candidate = int(model[0])
        return np.full(self.number, 5 if self.right is None or not candidate else self.right[candidate - 1])


def chosen(search: Backtracking, judges: Judges, candidates: int, own: Own = EMPTY) -> Choice:
    """The choice among candidates whose models are [1], [2] ..., where the model before is [0]."""
    updates, column = Updates(np.arange(1, candidates + 1, dtype=np.float32)[:, np.newaxis]), np.ones((candidates, 1))
    cohort = Cohort(1, tuple(range(candidates)), updates, {"samples": column[:, 0]})
    view = View(1, np.zeros(1, np.float32), History(), Host(judges, ()), Draws(0, 1), {"search": own})  # type: ignore[arg-type]
    made = [Candidate(OWN, str(row), Weights(column, column, row, row)) for row in np.eye(candidates)]
    job = Job(fedavg(), cohort, one_group(cohort), made, view)
    return search.choose(Batch.of(cohort, made, view, EMPTY), job)


@pytest.mark.parametrize(
    ("search", "own", "place", "quality"),
    [
        (Backtracking(), {"quality": 0.6, "best": 0.6}, 0, 0.6),  # [DAFL, Alg. 1] goes on while the accuracy is smaller
        (Backtracking(), {"quality": 0.7, "best": 0.7}, 1, 0.9),
        (Backtracking(), {"quality": 0.5, "best": 0.8}, 0, 0.6),  # after a fall to 0.5, 0.6 is enough for the paper
        (Backtracking(reference="best_so_far"), {"quality": 0.5, "best": 0.8}, 1, 0.9),
        (Backtracking(), EMPTY, 0, 0.6),  # in the first round: not worse than the model before, which has 0.5
    ],
)
def test_a_candidate_is_compared_with_the_last_round_or_with_the_best_so_far(
    search: Backtracking, own: Own, place: int, quality: float
):
    choice = chosen(search, Judges(1, [6, 9]), 2, own)
    assert (choice.place, choice.quality) == (place, quality)
    after = remember_choice(search, "label", choice, own)
    assert after == {"label": "label", "quality": quality, "best": max(quality, own.get("best", 0.0))}


def test_a_single_candidate_is_taken_without_asking():
    judges = Judges(1, [1])
    choice = chosen(Backtracking(), judges, 1, {"quality": 0.9, "best": 0.9})
    assert (choice.place, choice.quality, judges.asked) == (0, None, [])


@pytest.mark.parametrize(
    ("step", "built"), [(SGD(), True), (HeavyBall(0.5), True), (Adam(), False), (Momentum(), False)]
)
def test_clients_build_models_of_steps_that_are_sums_and_are_sent_all_others(step: ServerOptimizer, built: bool):
    """Two weightings and the model before: as mixtures that is the model and two aggregates, else three models."""
    judges = Judges(2)
    facts = ({"samples": 1.0, "labels": 3.0}, {"samples": 4.0, "labels": 1.0})
    replies = Replies((0, 1), Updates(np.eye(2, dtype=np.float32)), facts)
    search = Backtracking(orders="all")
    recipe = replace(device_aware(DS, LD, normalise="max", search=search), server=Server(optimizer=step))
    start, host = State(np.zeros(2, np.float32)), Host(judges, ("a", "b"))  # type: ignore[arg-type]
    assignment = Assignment((start.model,), {0: 0, 1: 0})
    moved = aggregate_round(start, recipe, replies, host, assignment, 0, Clock()).moved
    (models,) = judges.models
    assert len(models) == 3
    assert isinstance(models, Mixtures) == built
    assert moved.search.bytes_down == 2 * 3 * 2 * 4
    place = [one.chosen for one in moved.search.results].index(True)
    assert moved.model == pytest.approx(models[place])
