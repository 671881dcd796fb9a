"""Bytes by the ledger are those of the vectors that the transport carried, to the byte; a search's models included."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from helpers import ProbabilisticSoftmax, random_split, small_task
from small_app import Arrays, everybody, make_app

from fedmerit import DS, LD, MW, Recipe, Task, adaptive, device_aware, fedavg, m2f
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.criteria.table import DATA_RATIO, PARTICIPATION
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.state import Record, State
from fedmerit.fleet import blocks
from fedmerit.flower import GridFleet, InProcessGrid, Merit, facts, make_client_app

CLIENTS = 6
RECIPES: dict[str, Callable[[], Recipe]] = {
    "fedavg": fedavg,
    "DAFL": lambda: searched(adjust_on="test", tolerance=0.0),
    "DAFL on validation rows": lambda: searched(tolerance=0.0),
    "adaptive": lambda: adaptive(LD, DS),
    "m2f": lambda: m2f(PARTICIPATION, DATA_RATIO, initial=0.0),
}


def searched(**settings: object) -> Recipe:
    return device_aware(DS, LD, MW, normalise="max", search=Backtracking(**settings))  # type: ignore[arg-type]


class CountingGrid(InProcessGrid):
    """Counts the bytes of all vectors that go to nodes and come back."""

    sent = received = 0

    def deliver(self, message: Message) -> Message:
        reply = super().deliver(message)
        self.sent += vector_bytes(message)
        self.received += vector_bytes(reply)
        return reply


def vector_bytes(message: Message) -> int:
    """The bytes of a message's vectors; none in an error."""
    records = message.content.array_records.values() if message.has_content() else ()
    return sum(array.numpy().nbytes for record in records for array in record.values())


def task() -> Task:
    made = small_task((6, 40, 9, 25, 30, 14), (8,) * CLIENTS, ProbabilisticSoftmax(lr=1.0, epochs=3))
    return Task(replace(made.federation, validation=random_split((7,) * CLIENTS, 3)), made.learner)


def fleet_of(made: Task, nodes: int = CLIENTS, kind: Any = CountingGrid) -> tuple[GridFleet, Any]:
    grid = kind(make_client_app(lambda context: made.client(int(context.node_config["partition-id"]))), nodes)
    fleet = GridFleet(grid, made.server())
    fleet.meet(nodes)
    return fleet, grid


def played(fleet: GridFleet, recipe: Recipe, *, evaluate: bool, rounds: int = 3) -> list[Record]:
    state, records = State(fleet.server.first_model(1)), []
    for _ in range(rounds):
        state, record = run_round(state, recipe, Host.of(fleet), InTime(Uniform(0.7)), seed=5, evaluate=evaluate)
        records.append(record)
    return records


@pytest.mark.parametrize("name", RECIPES)
def test_bytes_are_those_of_the_transport(name: str):
    fleet, grid = fleet_of(task())
    records = played(fleet, RECIPES[name](), evaluate=False)
    assert sum(record.bytes_down for record in records) == grid.sent
    assert sum(record.bytes_up for record in records) == grid.received > 0
    searching = [record.search.bytes_down for record in records if record.search]
    assert any(searching) == (name not in ("fedavg", "m2f"))


def test_the_candidates_that_were_tested_are_the_evaluation_too():
    """DAFL as published decides on all test rows, so that its report asks nobody again and costs nothing."""
    fleet, grid = fleet_of(task())
    records = played(fleet, RECIPES["DAFL"](), evaluate=True)
    assert sum(record.bytes_down for record in records) == grid.sent


def test_a_test_that_only_reports_is_not_booked():
    fleet, grid = fleet_of(task())
    records = played(fleet, fedavg(), evaluate=True)
    model = fleet.server.first_model(1).nbytes
    assert grid.sent - sum(record.bytes_down for record in records) == 3 * CLIENTS * model


def test_nodes_that_are_away_are_sent_nothing():
    fleet, grid = fleet_of(task(), nodes=CLIENTS - 2)
    records = played(fleet, RECIPES["DAFL"](), evaluate=False)
    assert sum(record.bytes_down for record in records) == grid.sent
    assert any("not connected" in reason for record in records for reason in record.dropped.values())


@pytest.mark.parametrize("name", ["fedavg", "DAFL"])
def test_a_strategy_books_what_its_apps_arrays_weigh(name: str):
    """Arrays of an app that exists travel in types of their own: whole counters, 8-byte numbers."""
    model = ArrayRecord(
        {"weight": Array(np.zeros((4, 3), np.float32)), "bias": Array(np.zeros(3)), "steps": Array(np.array(7))}
    )
    recipe = RECIPES[name]()

    def train(place: int) -> dict[str, float]:
        labels = np.arange(8 + place) % 3
        return {"num-examples": len(labels)} | facts(labels, 3, recipe)

    def move(place: int, arrays: Arrays) -> Arrays:
        return {**arrays, "bias": arrays["bias"] + 1.0}

    app = make_app(train, lambda *_: {"num-examples": 10, "accuracy": 0.5}, move)
    grid = CountingGrid(app, CLIENTS)
    strategy = Merit(recipe, fraction_evaluate=0.0, **everybody(CLIENTS))
    strategy.start(grid, model, num_rounds=2)
    assert sum(record.bytes_down for record in strategy.records) == grid.sent
    assert sum(record.bytes_up for record in strategy.records) == grid.received == 2 * CLIENTS * 80


class HoldingGrid(CountingGrid):
    """Notes the bytes of models that are held in messages of one push, each object once."""

    held = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        records = [record for one in messages for record in one.content.array_records.values()]
        arrays = {id(array.data): len(array.data) for record in records for array in record.values()}
        self.held = max(self.held, sum(arrays.values()))
        return super().push_messages(messages)


def test_nodes_that_start_from_the_same_model_share_its_bytes():
    fleet, grid = fleet_of(task(), kind=HoldingGrid)
    played(fleet, fedavg(), evaluate=True, rounds=1)
    assert grid.held == len(Array(fleet.server.first_model(1)).data)


@pytest.mark.parametrize("name", ["fedavg", "DAFL"])
def test_updates_beyond_the_memory_go_through_a_file_to_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch):
    reserve, reserved = blocks._reserve, list[int]()

    def counting(descriptor: int, size: int) -> None:
        reserved.append(size)
        reserve(descriptor, size)

    monkeypatch.setattr(blocks, "_reserve", counting)
    results = []
    for memory in (10**9, 0):
        assert not reserved
        monkeypatch.setattr(blocks, "quarter_of_ram", lambda memory=memory: memory)
        fleet, _ = fleet_of(task())
        results.append(played(fleet, RECIPES[name](), evaluate=True))
    assert reserved
    for first, second in zip(*results, strict=True):
        assert (first.weights.weights == second.weights.weights).all()
        assert (first.evaluation.correct == second.evaluation.correct).all()
