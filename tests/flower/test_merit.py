"""Merit, the drop-in strategy: FedAvg's results, and one where FedAvg crashes; criteria, search, validation."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from small_app import Arrays, everybody, make_app

from fedmerit import CB, DS, LD, Recipe, device_aware, fedavg, fedval, last_answers, m2f, prioritized
from fedmerit.core.criteria.table import COMPUTATION, SIMULATED_COMPUTATION
from fedmerit.core.objectives import Predictions
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.errors import ConfigError
from fedmerit.flower import InProcessGrid, Merit, facts
from fedmerit.flower.grid import SafeGrid

NODES, UNREADABLE = 5, 2
SETTINGS = everybody(NODES)


def record(values: np.ndarray) -> ArrayRecord:
    """A model of two layers and a counter, as a framework's state is."""
    return ArrayRecord(
        {
            "layer.weight": Array(values[:6].reshape(2, 3).astype(np.float32)),
            "layer.bias": Array(values[6:8].astype(np.float64)),
            "steps": Array(np.array(values[8], dtype=np.int64)),
        }
    )


def values(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([np.ravel(array.numpy()) for array in arrays.values()]).astype(np.float64)


def labels(node: int) -> np.ndarray:
    return np.random.default_rng(node).integers(0, 2 + node % 3, 10 + 7 * node)


def app_for(recipe: Recipe, samples: Sequence[Any] | None = None, spoil: Any = None, own: Any = None) -> ClientApp:
    """An app as one finds it, plus the recipe's facts; `spoil` changes the content of a node's answer."""

    def train(node: int) -> dict[str, Any]:
        told = {"num-examples": len(labels(node)) if samples is None else samples[node], "train_loss": 1.0 + node}
        return told | facts(labels(node), 4, recipe, **({} if own is None else own(node)))

    def move(node: int, arrays: Arrays) -> Arrays:
        flat = np.concatenate([np.ravel(array) for array in arrays.values()]).astype(np.float64)
        return {name: one.numpy() for name, one in record(flat + np.arange(9) * (node + 1) / 10 + 1).items()}

    def test(node: int, arrays: Arrays) -> dict[str, Any]:
        accuracy = float(1 / (1 + np.exp(-arrays["layer.weight"][0, 0] * (node - 2))))
        return {"num-examples": 1000, "accuracy": accuracy}

    def spoiling(message: Message, context: Context, call: Any) -> Message:
        reply = call(message, context)
        if spoil is not None and message.metadata.message_type == "train":
            spoil(int(context.node_config["partition-id"]), reply.content)
        return reply

    return make_app(train, test, move, [spoiling])


def run(strategy: FedAvg, app: ClientApp, rounds: int = 2) -> np.ndarray:
    return values(strategy.start(InProcessGrid(app, NODES), record(np.arange(9.0)), num_rounds=rounds).arrays)


WEIGHTS = {
    "equal": [1, 1, 1, 1, 1],
    "rising": [10, 20, 30, 40, 50],
    "one of them nearly all": [1, 1000000, 1, 1, 1],
    "not whole": [3.5, 1.5, 1.0, 2.0, 9.0],
    "large": [5, 5, 5, 5, 10**9],
    "one without rows": [5, 0, 5, 5, 5],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weighted_averages_are_flowers_own(name: str):
    samples = WEIGHTS[name]
    theirs, ours = FedAvg(**SETTINGS), Merit(fedavg(), **SETTINGS)
    results = [
        strategy.start(InProcessGrid(app_for(fedavg(), samples), NODES), record(np.arange(9.0)), num_rounds=2)
        for strategy in (theirs, ours)
    ]
    arrays = [values(result.arrays) for result in results]
    assert arrays[1][:8] == pytest.approx(arrays[0][:8], rel=1e-5)
    assert abs(arrays[1][8] - arrays[0][8]) <= 2  # a counter: Flower averages it as a float, ours stays a whole number
    for told in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        metrics = [{number: dict(one) for number, one in getattr(result, told).items()} for result in results]
        assert metrics[1].keys() == metrics[0].keys()
        for number, one in metrics[0].items():
            assert metrics[1][number] == pytest.approx(one, rel=1e-4)


def test_a_memory_asks_every_node_first_and_counts_their_last_answers():
    strategy = Merit(last_answers(), fraction_train=0.4, min_train_nodes=2, min_available_nodes=NODES)
    run(strategy, app_for(last_answers()), rounds=3)
    answered = [
        record.ids if index == 0 else record.facts["remembered"] for index, record in enumerate(strategy.records)
    ]
    assert [len(ids) for ids in answered] == [NODES, NODES, NODES]
    assert [int((ages == 0).sum()) for ages in answered[1:]] == [2, 2]
    assert strategy.fraction_train == 0.4


def other_names(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"layer.weight": Array(np.zeros((9, 9), np.float32))})


def other_shape(content: RecordDict) -> None:
    arrays = dict(content["arrays"].items()) | {"layer.weight": Array(np.zeros((9, 9), np.float32))}
    content["arrays"] = ArrayRecord(arrays)


def raises(content: RecordDict) -> None:
    raise MemoryError("too large")


FAULTS: dict[str, tuple[float | None, Any, str, str]] = {
    "NaN": (float("nan"), None, "fact samples", "spoils"),
    "negative": (-1, None, "fact samples", "goes on"),
    "no rows": (0, None, "no training samples", "goes on"),
    "other names": (None, other_names, "has the arrays", "ends"),
    "another shape": (None, other_shape, "has shape", "ends"),
    "no metrics": (None, lambda content: content.pop("metrics"), "one MetricRecord", "ends"),
    "two of them": (None, lambda content: content.update(more=MetricRecord({"a": 1})), "one MetricRecord", "ends"),
    "an error": (None, raises, "too large", "goes on"),
}
"""What node 3 sends in place of its number of rows, or does to its answer; what we say; what FedAvg does of it."""


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("name", FAULTS)
def test_where_fedavg_ends_the_run_we_leave_the_node_out(name: str):
    number, change, says, fedavg_does = FAULTS[name]
    samples = None if number is None else [5, 5, 5, number, 5]

    def spoil(node: int, content: RecordDict) -> None:
        if node == 3 and change is not None:
            change(content)

    strategy = Merit(fedavg(), **SETTINGS)
    assert np.isfinite(run(strategy, app_for(fedavg(), samples, spoil))).all()
    for told in strategy.records:
        assert list(told.dropped) == [3]
        assert says in told.dropped[3]
        assert told.ids == (0, 1, 2, 4)
    try:
        finite = np.isfinite(run(FedAvg(**SETTINGS), app_for(fedavg(), samples, spoil))).all()
        theirs = "goes on" if finite else "spoils"
    except (ValueError, InconsistentMessageReplies):
        theirs = "ends"
    assert theirs == fedavg_does


def test_criteria_weigh():
    recipe = prioritized(LD, CB, DS, normalise="max")
    strategy = Merit(recipe, **SETTINGS)
    run(strategy, app_for(recipe))
    told = strategy.records[0]
    assert told.facts["labels"].tolist() == [len(np.unique(labels(node))) for node in range(NODES)]
    assert told.facts["samples"].tolist() == [len(labels(node)) for node in range(NODES)]
    explained = strategy.explain(1)
    assert [one.id for one in explained] == list(range(NODES))
    assert sum(one.weight for one in explained) == pytest.approx(1)
    assert np.ptp([one.weight for one in explained]) > 0.05
    assert set(explained[0].criteria) == {"LD", "CB", "DS"}
    assert strategy.explain(3) == []


def test_a_search_asks_the_apps_own_evaluate_in_one_exchange():
    recipe = device_aware(LD, DS, normalise="max", search=Backtracking(adjust_on="test", tolerance=0.0))
    strategy = Merit(recipe, **SETTINGS)
    run(strategy, app_for(recipe), rounds=3)
    for told in strategy.records:
        assert (told.search.exchanges, len(told.search.results)) == (1, 2)
        best = max(one.quality or 0 for one in told.search.results)
        assert best == next(one.quality for one in told.search.results if one.chosen)


def test_the_server_evaluates_models():
    def server_evaluate(models: Sequence[ArrayRecord]) -> Predictions:
        right = [[int(values(model)[0] > 2.0)] * 10 for model in models]
        return Predictions(np.ones(10, np.int64), 2, {}, np.array(right))

    recipe = fedval("accuracy", rho=1.0)
    strategy = Merit(recipe, server_evaluate=server_evaluate, **SETTINGS)
    run(strategy, app_for(recipe))
    assert "validated:accuracy" in strategy.records[0].facts


@pytest.mark.parametrize("kind", ["list", "numpy", "torch", "pandas"])
def test_facts_of_any_library(kind: str):
    import pandas
    import torch

    y = [0, 1, 1, 2]
    given = {"list": y, "numpy": np.array(y), "torch": torch.tensor(y), "pandas": pandas.Series(y)}[kind]
    found = facts(given, 3, prioritized(LD, CB), sex=[0, 1, 1, 1])
    assert found == {"labels": 3.0, "balance": 0.5}
    assert facts(given, 3, sex=[0, 1, 1, 1]) == {"labels": 3.0, "coverage": 1.0, "balance": 0.5, "attribute:sex": 0.75}


def test_under_flowers_clipping_updates_are_weighed_as_they_were_clipped():
    recipe, norm = prioritized(LD, DS, normalise="max"), 0.5
    strategy = Merit(recipe, **SETTINGS)
    start = values(record(np.arange(9.0)))
    clipping: Any = DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, norm, NODES)
    moved = run(clipping, app_for(recipe), rounds=1) - start
    assert [told.ids for told in strategy.records] == [(0, 1, 2, 3, 4)]
    assert 0 < np.linalg.norm(moved[:8]) <= norm * 1.0001
    assert np.linalg.norm(moved[:8]) < np.linalg.norm((run(Merit(recipe, **SETTINGS), app_for(recipe), 1) - start)[:8])


REFUSED = {
    "clock": (prioritized(COMPUTATION, DS), "needs clock, which a Flower strategy cannot .*ReportedComputation"),
    "epochs": (prioritized(SIMULATED_COMPUTATION, DS), "needs epochs, which a Flower strategy cannot"),
    "models": (m2f(), "fedmerit flower"),
    "server rows": (fedval("accuracy"), "server_evaluate"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_recipe_that_a_strategy_cannot_run_is_refused(name: str):
    recipe, says = REFUSED[name]
    with pytest.raises(ConfigError, match=says):
        Merit(recipe)


def test_facts_of_a_clients_own_are_told_and_weighed():
    recipe = prioritized("fact:age in 20..35", "fact:job is nurse", "fact:vip", normalise="max")
    told = facts([0, 1], 2, recipe, age=34, job="nurse", vip=True)
    assert told == {"fact:age": 34.0, "fact:job is nurse": 1.0, "fact:vip": 1.0}

    def own(node: int) -> dict[str, Any]:
        return {"age": 30 + 10 * node, "job": "nurse", "vip": True}

    app = app_for(recipe, own=own)
    strategy = Merit(recipe, **SETTINGS)
    run(strategy, app, 1)
    assert {one.id: one.weight for one in strategy.explain(1)} == {0: 1.0, 1: 0, 2: 0, 3: 0, 4: 0}


class Losing(InProcessGrid):
    """A grid that reads replies as Flower does: one that makes no message raises, and takes those beside it along."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        if any(one.metadata.src_node_id == 1000 + UNREADABLE for one in replies):
            raise ValueError("Unknown object \x1b[2J")
        return replies

    def deliver(self, message: Message) -> Message:
        reply = super().deliver(message)
        reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        return reply


@pytest.mark.parametrize("recipe", [fedavg(), device_aware(DS, LD)], ids=["fedavg", "a search"])
def test_under_merit_it_costs_its_node_alone_too(recipe: Recipe):
    with pytest.raises(ValueError, match="Unknown object"):
        FedAvg(**SETTINGS).start(Losing(app_for(recipe), NODES), record(np.arange(9.0)), num_rounds=1)
    strategy = Merit(recipe, **SETTINGS)
    result = strategy.start(Losing(app_for(recipe), NODES), record(np.arange(9.0)), num_rounds=2)
    assert list(result.evaluate_metrics_clientapp) == [1, 2]
    for one in strategy.records:
        assert sorted(one.ids) == [place for place in range(NODES) if place != UNREADABLE]
        (reason,) = one.dropped.values()
        assert reason.endswith("its reply cannot be read: ValueError: Unknown object \\x1b[2J")


def test_a_safe_grid_waits_no_longer_than_it_is_told():
    class Mute(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return super().pull_messages([name for name in message_ids if name != "1"])

    grid = SafeGrid(Mute(app_for(fedavg()), NODES))
    content = RecordDict({"arrays": record(np.arange(9.0))})
    asked = [Message(content, dst_node_id=node, message_type="evaluate") for node in grid.get_node_ids()]
    answers = list(grid.send_and_receive(asked, timeout=0.1))
    assert sorted(one.metadata.reply_to_message_id for one in answers) == ["2", "3", "4", "5"]
    assert list(grid.send_and_receive([])) == []
