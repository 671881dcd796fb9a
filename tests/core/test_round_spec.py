"""The specification of a round: rounds of six algorithms, with few clients and numbers worked by hand.

Each test goes facts -> criteria -> normalised table -> scores -> weights -> next model or rewards. Clients, judges and
the server's rows answer what is written down here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, run_canned

from fedmerit import DS, LD, Recipe, Samples, device_aware, fedavg, fedval, last_answers, m2f, prioritized
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.host import Host, ServerSetup
from fedmerit.core.objectives import Predictions
from fedmerit.core.round import run_round
from fedmerit.core.state import History, Record, State
from fedmerit.core.types import Evaluation, Replies, Verdict

Entries = tuple[int, ...]
LABELS = np.array([0, 1, 1, 0])
"""Of the server's rows."""


@dataclass(frozen=True)
class SpecFleet(CannedFleet):
    """A canned fleet with a clock, clients that judge models, and a server with four rows.

    seconds         how long each client took
    correct         model -> how many of its 10 rows each client has right with it
    predictions     model -> the labels that it predicts for the server's rows
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    correct: Mapping[Entries, Sequence[int]] = field(default_factory=dict)
    predictions: Mapping[Entries, Sequence[int]] = field(default_factory=dict)

    @property
    def server(self) -> ServerSetup:
        rows = Samples(np.zeros((4, 1)), LABELS, 2)
        return replace(super().server, rows=rows, faster=self.predict)

    def train(self, *request: Any) -> Replies:
        return replace(super().train(*request), seconds=self.seconds)

    def predict(self, models: Iterable[np.ndarray]) -> Predictions:
        return Predictions(LABELS, 2, {}, np.array([self.predictions[entries(model)] for model in models]))

    def evaluate(self, models: Any, on: str = "test", clients: Any = None, *, losses: bool = False) -> Any:
        counts = [np.array(self.correct[entries(model)]) for model in models]
        return [Evaluation(count, np.full(len(count), 10)) for count in counts]


def entries(model: np.ndarray) -> Entries:
    return tuple(np.rint(model).astype(int).tolist())


def fleet(updates: list[list[float]], facts: Mapping[str, list[float]], **answers: Any) -> SpecFleet:
    rows = [dict(zip(facts, values, strict=True)) for values in zip(*facts.values(), strict=True)]
    return SpecFleet(np.array(updates, np.float32), rows, **answers)


def model(*values: float) -> State:
    return State(np.array(values, np.float32))


def check(record: Record, *, criteria: Any, normalised: Any, scores: Any, weights: Any) -> None:
    """The way from criteria to weights, a row per client."""
    assert record.weights.raw == pytest.approx(np.array(criteria, np.float64))
    assert record.weights.table == pytest.approx(np.array(normalised, np.float64))
    assert record.weights.scores == pytest.approx(scores)
    assert record.weights.weights == pytest.approx(weights)


def test_fedavg():
    """Weights are shares of the rows: 10, 30 and 60 of 100."""
    clients = fleet([[1, 0], [0, 2], [4, 4]], {"samples": [10, 30, 60]})
    state, record = run_canned(fedavg(), clients, model(1, 1))
    scores = [1 / 6, 1 / 2, 1]  # of the largest
    normalised = [[score] for score in scores]
    weights = [0.1, 0.3, 0.6]
    check(record, criteria=[[10], [30], [60]], normalised=normalised, scores=scores, weights=weights)
    # 1 + 0.1 * 1 + 0.6 * 4 and 1 + 0.3 * 2 + 0.6 * 4
    assert state.model == pytest.approx([3.5, 4.0])
    assert state.model.dtype == np.float32
    assert (state.history.rounds, state.history.participations) == (1, {0: 1, 1: 1, 2: 1})
    assert (record.index, record.ids, record.dropped, record.label) == (1, (0, 1, 2), {}, "DS")


def test_pmcfl():
    """Label diversity first, then dataset size: score = LD + LD * DS, each column divided by its maximum."""
    clients = fleet([[13, 0], [0, 13], [13, 26]], {"labels": [10, 5, 5], "samples": [50, 100, 50]})
    state, record = run_canned(prioritized(LD, DS, normalise="max"), clients, model(0, 1))
    check(
        record,
        criteria=[[10, 50], [5, 100], [5, 50]],
        normalised=[[1, 0.5], [0.5, 1], [0.5, 0.5]],
        scores=[1 + 0.5, 0.5 + 0.5, 0.5 + 0.25],
        weights=[1.5 / 3.25, 1 / 3.25, 0.75 / 3.25],  # 6/13, 4/13, 3/13
    )
    # 6 + 3 and 1 + 4 + 2 * 3
    assert state.model == pytest.approx([9, 11])


def test_last_answers():
    """Client 1 does not answer in round 2: its update of round 1 counts again, and 30 of 40 rows are its own."""
    clients = fleet([[4, 0], [0, 4]], {"samples": [10, 30]})
    state, record = run_canned(last_answers(rounds=1), clients, model(0, 0))
    assert state.model == pytest.approx([1, 3])
    assert "remembered" not in record.facts
    alone = fleet([[8, 8]], {"samples": [10]})
    state, record = run_round(state, last_answers(rounds=1), Host.of(alone), InTime(Uniform(1.0)), 0, False)
    check(record, criteria=[[10], [30]], normalised=[[1 / 3], [1]], scores=[1 / 3, 1], weights=[0.25, 0.75])
    # 1 + 0.25 * 8 and 3 + 0.25 * 8 + 0.75 * 4
    assert state.model == pytest.approx([3, 8])
    assert record.facts["remembered"].tolist() == [0, 1]
    assert state.history.participations == {0: 2, 1: 1}
    state, record = run_round(state, last_answers(rounds=1), Host.of(alone), InTime(Uniform(1.0)), 0, False)
    assert record.ids == (0,)  # two rounds are too long ago


DAFL = device_aware(DS, LD, normalise="max")
BEFORE, BY_SIZE, BY_LABELS = (0, 0), (1, 2), (2, 1)
"""The model before the round, and the candidates of both orders."""


def dafl_fleet(correct: Mapping[Entries, Sequence[int]]) -> SpecFleet:
    """DS is 1/3 and 1, LD is 1 and 1/3 after division by the maximum.

    DS > LD     scores 1/3 + 1/3 * 1 = 2/3 and 1 + 1 * 1/3 = 4/3, weights 1/3 and 2/3, model 1/3 * [3, 0] + 2/3 * [0, 3]
    LD > DS     scores 4/3 and 2/3, weights 2/3 and 1/3, model [2, 1]
    """
    return fleet([[3, 0], [0, 3]], {"samples": [1, 3], "labels": [3, 1]}, correct=correct)


def test_dafl_tries_the_other_order_where_the_current_one_is_worse():
    # of 20 rows the model before has 10 right, the current order 9, the other one 11
    clients = dafl_fleet({BEFORE: (5, 5), BY_SIZE: (4, 5), BY_LABELS: (6, 5)})
    state, record = run_canned(DAFL, clients)
    check(
        record,
        criteria=[[3, 1], [1, 3]],
        normalised=[[1, 1 / 3], [1 / 3, 1]],
        scores=[4 / 3, 2 / 3],
        weights=[2 / 3, 1 / 3],
    )
    assert state.model == pytest.approx([2, 1])
    assert (record.label, record.priority) == ("LD > DS", ("LD", "DS"))
    assert [(one.weighting, one.quality, one.exchange, one.chosen) for one in record.search.results] == [
        ("DS > LD", 0.45, 1, False),
        ("LD > DS", 0.55, 2, True),
    ]
    # two exchanges: the current order with the model before, then the other order; each judge tests three models
    report = record.search
    assert (report.exchanges, report.models_sent, report.tests, report.quality) == (2, 3, 6, 0.55)
    # to each of two judges, twice: a model and an aggregate of two entries of 4 bytes
    assert report.bytes_down == record.bytes_down == 2 * 2 * (2 * 2 * 4)
    assert state.own == {"search": {"label": "LD > DS", "quality": 0.55}}

    # the next round starts with the order that was taken, and 11 of 20 is what it must reach: one model is tested
    later = replace(clients, correct={(4, 2): (5, 6)})
    after, second = run_canned(DAFL, later, state)
    assert after.model == pytest.approx([4, 2])
    assert (second.label, second.search.exchanges, second.search.tests) == ("LD > DS", 1, 2)


@pytest.mark.parametrize(("by_size", "by_labels", "taken"), [(5, 9, BY_SIZE), (4, 3, BY_SIZE), (3, 4, BY_LABELS)])
def test_dafl_takes_the_first_that_is_not_worse_and_else_the_least_bad(by_size: int, by_labels: int, taken: Entries):
    clients = dafl_fleet({BEFORE: (5, 5), BY_SIZE: (by_size, 5), BY_LABELS: (by_labels, 5)})
    assert entries(run_canned(DAFL, clients)[0].model) == taken


def test_m2f():
    """Two groups by the direction of updates; quality = participation x speed x data ratio within the group."""
    updates = [[4, 3, -2, 1], [8, 6, -4, 2], [1, 0, 2, 0], [3, 0, 6, 0]]  # cosines 1 within, 0 between
    clients = fleet(updates, {"samples": [30, 10, 10, 10]}, seconds={0: 2.0, 1: 1.0, 2: 4.0, 3: 1.0})
    start = replace(model(7, 7, 7, 7), history=History(1, {0: 1, 2: 1, 3: 1}))  # round 2, client 1 missed round 1
    state, record = run_canned(m2f(), clients, start)
    assert (record.groups.labels.tolist(), record.groups.cut) == ([0, 0, 1, 1], 0.5)
    check(
        record,
        # rounds / 2, slowest of the group / own seconds, share of the group's rows
        criteria=[[1, 1, 0.75], [0.5, 2, 0.25], [1, 1, 0.5], [1, 4, 0.5]],
        normalised=[[1, 0.5, 1], [0.5, 1, 1 / 3], [1, 0.25, 1], [1, 1, 1]],
        scores=[1 / 2, 1 / 6, 1 / 4, 1],
        weights=[0.75, 0.25, 0.2, 0.8],
    )
    # aggregates: (0.75 * 1 + 0.25 * 2) * [4, 3, -2, 1] = [5, 3.75, -2.5, 1.25], (0.2 + 0.8 * 3) * [1, 0, 2, 0]
    # entries: ceil(4 * weight) = 3, 1, 1 and all 4, the largest by magnitude
    rewards = record.rewards.rewards
    places = {client: None if one.places is None else one.places.tolist() for client, one in rewards.items()}
    assert places == {0: [0, 1, 2], 1: [0], 2: [2], 3: None}
    values = ([5, 3.75, -2.5], [5], [5.2], [2.6, 0, 5.2, 0])
    for reward, expected in zip(rewards.values(), values, strict=True):
        assert reward.values == pytest.approx(expected)
    assert record.rewards.verdicts == dict.fromkeys(range(4), Verdict(True))
    # values and places of 4 bytes each; the last reward is whole and has no places
    assert record.bytes_down == record.rewards.nbytes == 4 * (2 * 3 + 2 + 2 + 4)
    assert state.model.tolist() == [7, 7, 7, 7], "clients move their own models"


@pytest.mark.parametrize(
    ("recipe", "scores", "weights", "after"),
    [
        # accuracies 3/4, 1/4 and 1 as shares of their sum, 2
        (fedval("accuracy", rho=0.5), [0.75, 0.25, 1], [0.375, 0.125, 0.5], [1.75, 1.25]),
        # above the 1/2 of the model before: 1/4, nothing and 1/2
        (fedval("accuracy", rho=0.5, marginal=True), [0.25, 0, 0.5], [1 / 3, 0, 2 / 3], [2, 4 / 3]),
    ],
    ids=["accuracy", "gain"],
)
def test_fedval(recipe: Recipe, scores: list[float], weights: list[float], after: list[float]):
    """The server tests model + 0.5 * update of each client on its four rows, labels 0, 1, 1, 0."""
    predictions = {(0, 0): [0, 0, 0, 0], (1, 0): [0, 1, 1, 1], (0, 1): [1, 0, 0, 0], (1, 1): [0, 1, 1, 0]}
    clients = fleet([[2, 0], [0, 2], [2, 2]], {"samples": [10, 10, 10]}, predictions=predictions)
    state, record = run_canned(recipe, clients)
    columns = [[score] for score in scores]
    check(record, criteria=columns, normalised=columns, scores=scores, weights=weights)
    assert record.facts["validated:accuracy"].tolist() == [0.75, 0.25, 1]
    assert state.model == pytest.approx(after)
