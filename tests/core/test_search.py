"""Searches: which candidates are visited and taken, what goes out in which exchange, what it costs, what is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from helpers import small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import CB, DS, IS, LC, LD, MW, Claims, Prioritized, Recipe, device_aware, fedavg, federate
from fedmerit.core.criteria.table import CRITERIA
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment, Job
from fedmerit.core.round import aggregate_round
from fedmerit.core.search.backtracking import Answer, Backtracking
from fedmerit.core.search.evaluator import ROWS_PER_PASS, CandidateEvaluator, Mixtures
from fedmerit.core.search.search import Candidate, Choice, Weighting, distinct, kendall, remember_choice
from fedmerit.core.seeds import Draws
from fedmerit.core.server.optimizers import Adam, HeavyBall, Momentum
from fedmerit.core.server.server import SGD, Aggregate, Batch, Mean, Server, ServerOptimizer
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
    ("reference", "chosen", "exchanges"),
    [
        (0.50, "DLM", [["DLM"]]),  # the current order is not worse: nothing else is asked about
        (0.55, "DML", [["DLM"], REST]),
        (0.60, "LDM", [["DLM"], REST]),
        (0.70, "MDL", [["DLM"], REST]),
        (0.90, "MDL", [["DLM"], REST]),
    ],
)
def test_the_current_order_is_asked_about_first_and_then_all_that_are_left(reference, chosen, exchanges):
    assert play(Backtracking(), WORSE, reference) == (chosen, exchanges)


def test_nearest_first_from_another_order():
    """From MW > LD > DS: one swap away LMD and MDL, two away LDM and DML, three away DLM; ties by name."""
    current = next(way for way in ALL if short(way) == "MLD")
    visited = Backtracking().visit(current, ALL, np.random.default_rng(0))
    assert [short(way) for way in visited] == ["MLD", "LMD", "MDL", "DML", "LDM", "DLM"]


def test_the_least_bad_and_on_a_tie_the_nearest():
    level = dict.fromkeys(WORSE, 0.4) | {"LDM": 0.5, "MDL": 0.5}
    assert play(Backtracking(), level, 0.9)[0] == "LDM"
    assert play(Backtracking(), dict.fromkeys(WORSE, 0.4), 0.9)[0] == "DLM"


def test_where_nobody_answers_the_current_order_stays():
    nobody = dict.fromkeys(WORSE, float("nan"))
    assert play(Backtracking(), nobody, 0.5)[0] == "DLM"


accuracies = st.lists(st.integers(0, 20).map(lambda k: k / 20), min_size=6, max_size=6)


@given(accuracies, st.integers(0, 20).map(lambda k: k / 20))
def test_the_first_good_one_is_chosen_or_the_best(values, reference):
    """As if one order were tried after the other [DAFL, Alg. 1]."""
    qualities, search = dict(zip(WORSE, values, strict=True)), Backtracking()
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
        device_aware(DS, LD, MW, CB, LC, IS, CRITERIA["Participation"])


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
        (Backtracking(), {"quality": 0.6}, 0, 0.6),  # [DAFL, Alg. 1] goes on while the accuracy is smaller
        (Backtracking(), {"quality": 0.7}, 1, 0.9),
        (Backtracking(), EMPTY, 0, 0.6),  # in the first round: not worse than the model before, which has 0.5
    ],
)
def test_a_candidate_is_compared_with_the_last_round(search: Backtracking, own: Own, place: int, quality: float):
    choice = chosen(search, Judges(1, [6, 9]), 2, own)
    assert (choice.place, choice.quality) == (place, quality)
    assert remember_choice(search, "label", choice) == {"label": "label", "quality": quality}


def test_a_single_candidate_is_taken_without_asking():
    judges = Judges(1, [1])
    choice = chosen(Backtracking(), judges, 1, {"quality": 0.9})
    assert (choice.place, choice.quality, judges.asked) == (0, None, [])


@pytest.mark.parametrize(
    ("step", "built"), [(SGD(), True), (HeavyBall(0.5), True), (Adam(), False), (Momentum(), False)]
)
def test_clients_build_models_of_steps_that_are_sums_and_are_sent_all_others(step: ServerOptimizer, built: bool):
    """A weighting and the model before: as mixtures that is the model and an aggregate, else two models."""
    judges = Judges(2)
    facts = ({"samples": 1.0, "labels": 3.0}, {"samples": 4.0, "labels": 1.0})
    replies = Replies((0, 1), Updates(np.eye(2, dtype=np.float32)), facts)
    recipe = replace(device_aware(DS, LD, normalise="max"), server=Server(optimizer=step))
    start, host = State(np.zeros(2, np.float32)), Host(judges, ("a", "b"))  # type: ignore[arg-type]
    assignment = Assignment((start.model,), {0: 0, 1: 0})
    moved = aggregate_round(start, recipe, replies, host, assignment, 0, Clock()).moved
    models = judges.models[0]
    assert len(models) == 2
    assert isinstance(models, Mixtures) == built
    assert moved.search.bytes_down == 2 * 2 * 2 * 4
    assert moved.search.results[0].chosen
    assert moved.model == pytest.approx(models[0])


@dataclass(frozen=True)
class Worst:
    """Takes what the first three clients like least."""

    asks: str = "test"
    tolerance: float = 0.0

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        return base, Weighting(tuple(reversed(base.priority)), base.score, base.normalise)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        return weightings

    def choose(self, batch: Batch, job: Job) -> Choice:
        evaluator = CandidateEvaluator(batch, job, "test")
        evaluator.ask(range(len(evaluator)), job.cohort.ids[:3])
        return evaluator.choice(min(evaluator.evaluations, key=lambda place: evaluator.evaluations[place].accuracy))


def test_a_search_of_ones_own_chooses_and_is_recorded():
    run = federate(small_task(), Recipe((DS, LD), search=Worst(), normalise="max"), rounds=3, fraction=1.0, seed=2)
    for index in (1, 2, 3):
        results = run.ledger.candidates(index)
        assert [result.weighting for result in results] == ["DS > LD", "LD > DS"]
        chosen = next(result for result in results if result.chosen)
        assert chosen.quality == min(result.quality for result in results if result.quality is not None)
    row = run.ledger.rounds()[0]
    assert (row["exchanges"], row["evaluations"], row["tests"]) == (1, 2, 6)


SIZE = 3
START = np.full(SIZE, 10.0, np.float32)


@dataclass
class Asked:
    """Four clients that keep what they were asked about: a fifth of their rows right, and a loss of k on client k."""

    rows: Sequence[int] = (10, 10, 10, 10)
    models: list[list[list[float]]] = field(default_factory=list)
    clients: list[Sequence[int] | None] = field(default_factory=list)

    def judges(self) -> list[int]:
        return [0, 1, 2, 3]

    def evaluate(
        self, models: Sequence[Model], on: str, clients: Sequence[int] | None = None, *, losses: bool = False
    ) -> list[Evaluation]:
        self.models.append([model.tolist() for model in models])
        self.clients.append(clients)
        asked = np.isin(np.arange(4), self.judges() if clients is None else clients)
        sizes = np.where(asked, self.rows, 0)
        return [Evaluation(sizes // 5, sizes, np.arange(4.0) * asked if losses else None) for _ in models]


@dataclass(frozen=True)
class CountedMean(Mean):
    """The mean, which keeps how many weightings it was asked for at a time."""

    passes: list[int] = field(default_factory=list)

    def __call__(self, batch: Batch, weights: np.ndarray) -> np.ndarray:
        self.passes.append(len(weights))
        return batch.updates.combine(weights)


class Backwards:
    """A step that is not a sum of vectors, as far as the evaluator knows."""

    def __call__(self, model: Model, aggregate: Aggregate, own: Any, index: int) -> tuple[Model, Any]:
        return model - aggregate.update, {}


def evaluator(
    weights: np.ndarray, steps: Sequence[HeavyBall | None] = (), asked: Asked | None = None, **changes: Any
) -> tuple[CandidateEvaluator, Asked, list[int]]:
    """An evaluator whose aggregates are the weights themselves, its clients, and the sizes of the passes it made.

    changes     `optimizer`, `stages`, and `move`: the last move of the model
    """
    asked, mean = asked or Asked(), CountedMean()
    server = Server(mean, changes["optimizer"]) if "optimizer" in changes else Server(mean)
    recipe = Recipe((DS,), stages=changes.get("stages", ()), server=server)
    own = {"server": {"optimizer": {"move": changes["move"]}}} if "move" in changes else {}
    host = Host(asked, tuple("abcd"))  # type: ignore[arg-type]
    cohort = Cohort(2, (0, 1, 2), Updates(np.eye(SIZE, dtype=np.float32)), {})
    view = View(2, START, History(rounds=1), host, Draws(0, 2), own)
    candidates = [
        Candidate(Weighting(("DS",), Prioritized(), "sum", step), str(place), Weights(row, row, row, row))
        for place, (row, step) in enumerate(zip(weights, steps or [None] * len(weights), strict=True))
    ]
    job = Job(recipe, cohort, one_group(cohort), candidates, view)
    return CandidateEvaluator(Batch.of(cohort, candidates, view, {}), job, "test"), asked, mean.passes


def test_candidates_are_start_and_aggregate():
    made, asked, _ = evaluator(np.eye(SIZE))
    assert (made.exchanges, made.models_sent, made.tests, made.bytes_down, made.seconds) == (0, 0, 0, 0, 0)
    made.ask([2, 0], before=True)
    assert asked.models == [[[10, 10, 11], [11, 10, 10], [10, 10, 10]]]
    assert (made.exchanges, made.models_sent, made.tests) == (1, 3, 12)
    assert made.bytes_down == 4 * 3 * SIZE * 4  # to four clients: the model and two aggregates
    assert set(made.evaluations) == {0, 2}
    assert made.before is not None
    assert made.exchange_of == {2: 1, 0: 1}


def test_a_step_has_a_learning_rate_and_momentum():
    move = np.array([0, 0, 4], np.float32)
    made, asked, _ = evaluator(np.eye(SIZE)[:2], [HeavyBall(2.0, 0.0), HeavyBall(1.0, 0.5)], move=move)
    made.ask([0, 1])
    assert asked.models == [[[12, 10, 10], [10, 11, 12]]]
    assert made.bytes_down == 4 * 4 * SIZE * 4  # the move goes out as well


def test_a_step_of_another_kind_is_taken_by_the_server():
    made, asked, _ = evaluator(np.eye(SIZE)[:2], optimizer=Backwards())
    made.ask([0, 1], before=True)
    assert asked.models == [[[9, 10, 10], [10, 9, 10], [10, 10, 10]]]
    assert made.bytes_down == 4 * 3 * SIZE * 4  # three whole models


def test_candidates_that_share_their_weights_share_an_aggregate():
    same = np.array([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0]])
    made, asked, passes = evaluator(same, [HeavyBall(1.0, 0.0), HeavyBall(1.0, 0.0), HeavyBall(3.0, 0.0)])
    made.ask([0, 1, 2])
    assert asked.models == [[[11, 10, 10], [10, 11, 10], [13, 10, 10]]]
    assert (len(made), passes) == (3, [2])
    assert made.bytes_down == 4 * 3 * SIZE * 4


def test_more_weightings_than_go_at_once_take_another_exchange():
    weights = np.arange(3.0 * (ROWS_PER_PASS + 1)).reshape(-1, SIZE)
    made, asked, passes = evaluator(weights)
    made.ask(range(ROWS_PER_PASS + 1), before=True)
    assert [len(models) for models in asked.models] == [ROWS_PER_PASS + 1, 1]  # the model before goes out once
    assert passes == [ROWS_PER_PASS, 1]
    assert (made.exchange_of[ROWS_PER_PASS - 1], made.exchange_of[ROWS_PER_PASS], made.exchanges) == (1, 2, 2)
    assert made.aggregate(ROWS_PER_PASS).tolist() == weights[ROWS_PER_PASS].tolist()
    assert made.aggregate(1).tolist() == weights[1].tolist()
    made, asked, _ = evaluator(weights[:-1])
    made.ask(range(ROWS_PER_PASS))
    assert len(asked.models) == made.exchanges == 1


def test_some_clients_are_asked_and_a_candidate_keeps_its_first_exchange():
    made, asked, _ = evaluator(np.eye(SIZE))
    made.ask([1], [0, 2], before=True, losses=True)
    answers = made.evaluations[1]
    assert asked.clients == [[0, 2]]
    assert answers.sizes.tolist() == [10, 0, 10, 0]
    assert answers.losses.tolist() == [0, 0, 2, 0]
    assert made.before.sizes.tolist() == [10, 0, 10, 0]
    assert (made.tests, made.bytes_down) == (2 * 2, 2 * 2 * SIZE * 4)
    made.ask([1], [1])
    assert made.exchange_of == {1: 1}


def test_the_choice_has_what_was_learned_of_all():
    made, _, _ = evaluator(np.eye(SIZE))
    made.ask([2, 0], losses=True)
    choice = made.choice(2, quality=0.2)
    assert choice.aggregate.tolist() == [0, 0, 1]
    assert choice.evaluation is made.evaluations[2]
    assert [(one.quality, one.exchange, one.chosen) for one in choice.report.results] == [
        (6 / 40, 1, False), (None, None, False), (6 / 40, 1, True)]  # fmt: skip
    assert made.choice(2).evaluation is None, "without an exact quality the answers are not those of all"


def test_claims_bound_the_rows_of_a_judge():
    for stages, sizes in (((), [10, 10, 10, 1000]), ((Claims(k=2),), [10, 10, 10, 20])):
        made, _, _ = evaluator(np.eye(SIZE), asked=Asked((10, 10, 10, 1000)), stages=stages)
        made.ask([0], before=True)
        assert made.evaluations[0].sizes.tolist() == made.before.sizes.tolist() == sizes


def test_the_time_that_askings_took_is_added_up():
    made, _, _ = evaluator(np.eye(SIZE))
    begun = perf_counter()
    made.ask([0])
    first = made.seconds
    made.ask([1])
    assert 0 < first < made.seconds < perf_counter() - begun
