"""What Merit says of an app that does not report what it needs, and of a version of Flower that nobody tested."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, Result
from helpers import CommandLine
from small_app import Arrays, Tests, everybody, make_app

from fedmerit import Run, adaptive, device_aware, prioritized
from fedmerit.core.recipe import Recipe
from fedmerit.core.state import SERVER
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower import InProcessGrid, Merit, facts, versions
from fedmerit.report.data import collect

NODES = 3
SETTINGS = everybody(NODES)


def start(strategy: Merit, app: ClientApp, rounds: int = 1, **settings: Any) -> Any:
    arrays = ArrayRecord({"weight": Array(np.zeros((2, 2), np.float32))})
    return strategy.start(InProcessGrid(app, NODES), arrays, num_rounds=rounds, **settings)


def plain(place: int) -> dict[str, Any]:
    return {"num-examples": 10 + place}


def rich(place: int) -> dict[str, Any]:
    return {**plain(place), "train_loss": 1.0, **facts([0, 1] * (1 + place), 4)}


LINES: Mapping[str, tuple[Recipe, str]] = {
    "labels": (prioritized("LD", "DS"), "**facts(y, classes)"),
    "an attribute": (prioritized("attribute:sex"), "**facts(y, classes, recipe, sex=sex)"),
    "a client's own": (prioritized("fact:age in 20..35"), "**facts(y, classes, recipe, age=age)"),
    "pictures": (prioritized("IS", "DS"), "facts(y, classes, recipe, "),
    "seconds": (prioritized("ReportedComputation", "DS"), '"seconds": seconds'),
}


@pytest.mark.parametrize("name", LINES)
def test_a_fact_that_nobody_reports_ends_the_first_round_with_the_line_to_add(name: str):
    recipe, line = LINES[name]
    with pytest.raises(ConfigError) as error:
        start(Merit(recipe, **SETTINGS), make_app(plain))
    assert "no node reports `" in str(error.value)
    assert line in str(error.value)
    assert '"num-examples": len(y)' in str(error.value)
    assert max(map(len, str(error.value).splitlines())) <= 100


def test_num_examples_is_all_that_merit_needs_and_it_says_so():
    result = start(Merit(**SETTINGS), make_app(plain))
    assert result.arrays["weight"].numpy()[0, 0] == pytest.approx(np.average([1, 2, 3], weights=[10, 11, 12]))
    with pytest.raises(ConfigError, match=r"(?s)no node reports `num-examples`.*.*\"num-examples\": len\(y\)"):
        start(Merit(**SETTINGS), make_app(lambda place: {"loss": 1.0}))
    with pytest.raises(ConfigError, match=r"recipe must be a Recipe.*got 0\.5.*fraction_train=0\.5"):
        Merit(0.5)  # type: ignore[arg-type]


def test_some_nodes_without_a_fact_are_named_once(caplog: pytest.LogCaptureFixture):
    def some(place: int) -> dict[str, Any]:
        return {"partition-id": place, **(rich(place) if place else plain(place))}

    strategy = Merit(prioritized("LD", "DS"), names=["north", "east", "south"], **SETTINGS)
    start(strategy, make_app(some), rounds=2)
    (told,) = [record.getMessage() for record in caplog.records if "labels` is missing" in record.getMessage()]
    assert "dropped because `labels` is missing: north." in told
    assert "**facts(y, classes)" in told
    assert strategy.records[1].ids == (1, 2)


def test_names_need_partition_ids(caplog: pytest.LogCaptureFixture):
    names = ["north", "east", "south"]
    with pytest.raises(ConfigError, match=r'(?s)`names` needs.*"partition-id": context.node_config\["partition-id"\]'):
        start(Merit(names=names, **SETTINGS), make_app(plain))

    def some(place: int) -> dict[str, Any]:
        return plain(place) | ({"partition-id": place} if place else {})

    start(Merit(names=names, **SETTINGS), make_app(some))
    (told,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    reason = "'partition-id' must be a whole number from 0 to 2 (got None); report \"partition-id\""
    assert reason in " ".join(told.split())


SEARCHES: Mapping[str, tuple[Recipe, Tests | None, str]] = {
    "no evaluate function": (device_aware("LD", "DS"), None, r"node 1: its node answered with an error: .*evaluate"),
    "no accuracy": (
        device_aware("LD", "DS"),
        lambda *_: {"num-examples": 9, "f1": 0.5},
        r"node 1: `accuracy` must be .*got None; its metrics are num-examples, f1.*accuracy_key",
    ),
    "per cent": (
        device_aware("LD", "DS"),
        lambda *_: {"num-examples": 9, "acc": 93.0},
        r"`acc` must be a number from 0 to 1 \(got 93.0",
    ),
    "no loss": (adaptive(), lambda *_: {"num-examples": 9, "acc": 0.5}, r"`loss` must be .*loss_key"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_nobody_judges_stops(name: str):
    recipe, test, says = SEARCHES[name]
    with pytest.raises(RunFailed, match=f"search tests candidate models.*no node returned a usable result.*{says}"):
        start(Merit(recipe, **SETTINGS), make_app(rich, test))


def test_keys_can_be_named():
    app = make_app(rich, lambda *_: {"num-examples": 10, "f1": 0.5, "nll": 2.0, "accuracy": 7.0})
    strategy = Merit(adaptive(), accuracy_key="f1", loss_key="nll", **SETTINGS)
    start(strategy, app)
    evaluation = strategy.records[0].evaluation
    assert evaluation.accuracy == 0.5


@pytest.mark.parametrize("size", [0, 1, 2, 60, 12_345])
@pytest.mark.parametrize("recipe", [prioritized("DS"), adaptive()], ids=["fixed", "search"])
def test_the_accuracy_is_that_of_the_app_also_if_num_examples_counts_batches(recipe: Recipe, size: int):
    app = make_app(rich, lambda place, _: {"num-examples": size + place, "accuracy": 0.88, "loss": 0.5})
    strategy = Merit(recipe, **SETTINGS)
    start(strategy, app)
    evaluation = strategy.records[0].evaluation
    assert evaluation.accuracy == pytest.approx(0.88, abs=1e-3)
    assert evaluation.sizes / evaluation.sizes.sum() == pytest.approx(np.arange(size, size + 3) / (3 * size + 3))


def test_a_usual_name_is_found_and_logged_once(caplog: pytest.LogCaptureFixture):
    app = make_app(plain, lambda *_: {"num-examples": 10, "val-accuracy": 0.5, "train_acc": 1.0})
    strategy = Merit(**SETTINGS)
    start(strategy, app, rounds=2)
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "accuracy of the nodes" in line] == [
        "\t> the accuracy of the nodes is their metric `val-accuracy`"
    ]
    assert [record.evaluation.accuracy for record in strategy.records if record.evaluation] == [0.5, 0.5]


def test_without_an_accuracy_the_log_says_so_once(caplog: pytest.LogCaptureFixture):
    app = make_app(plain, lambda *_: {"num-examples": 10, "f1": 0.5})
    start(Merit(**SETTINGS), app, rounds=2)
    (told,) = [record.getMessage() for record in caplog.records if "no accuracy" in record.getMessage()]
    assert "its metrics are num-examples, f1" in " ".join(told.split())


def test_results_are_kept_under_their_names_and_facts_are_not_averaged(tmp_path: Path, cli: CommandLine):
    app = make_app(rich, lambda place, _: {"num-examples": 10, "eval_acc": 0.5, "eval_f1": 0.1 * place, "labels": 3})

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": 0.25, "auc": 0.1 * server_round, "loss": 2.0})

    strategy = Merit(prioritized("LD", "DS"), out=tmp_path / "a", **SETTINGS)
    result = start(strategy, app, rounds=2, evaluate_fn=evaluate_fn)
    assert dict(result.train_metrics_clientapp[2]) == {"train_loss": 1.0}
    assert set(result.evaluate_metrics_clientapp[2]) == {"eval_acc", "eval_f1"}
    kept = {(client, name): value for _, client, name, value in Run.load(tmp_path / "a").ledger.audits(2)}
    assert kept[SERVER, "auc"] == pytest.approx(0.2)
    assert kept[SERVER, "mean loss"] == 2.0
    assert kept[2, "eval_f1"] == pytest.approx(0.2)
    shown = cli("report", tmp_path / "a", "--text").out
    assert "auc 0.2000" in " ".join(shown.split())
    settings = Run.load(tmp_path / "a").ledger.meta()["settings"]
    assert '"name": "prioritized"' in settings


@pytest.mark.parametrize(("metric", "settings"), [("acc", {}), ("f1", {"accuracy_key": "f1"})])
def test_an_app_that_tests_only_on_the_server_has_an_accuracy(
    metric: str, settings: dict[str, Any], tmp_path: Path, cli: CommandLine
):
    evaluations = iter([0.1, 0.5, 0.75])
    strategy = Merit(out=tmp_path / "a", **SETTINGS, **settings, fraction_evaluate=0.0)
    start(strategy, make_app(plain), 2, evaluate_fn=lambda *_: MetricRecord({metric: next(evaluations)}))
    shown = " ".join(cli("report", tmp_path / "a", "--text").out.split())
    assert "accuracy 0.7500 (best 0.7500 in round 2); on the server's rows" in shown
    page, _ = collect([tmp_path / "a"], 0, json.dumps)
    measures = {one["name"]: one["lines"] for one in page["rows"][0]["curve"]["measures"]}
    assert measures["value"] == [[0.5, 0.75]]
    assert measures["p10"] == [[None, None]]


class OwnLoop(Merit):
    """A strategy with its own `start`, as in Flower's advanced-pytorch."""

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, evaluate_fn: Any = None) -> Result:  # type: ignore[override]
        result = Result()
        for number in range(1, num_rounds + 1):
            sent = self.configure_train(number, initial_arrays, ConfigRecord(), grid)
            arrays, _ = self.aggregate_train(number, grid.send_and_receive(sent))
            if arrays is not None:
                result.arrays = initial_arrays = arrays
            evaluate_fn(number, initial_arrays)
        return result


class Forwarding(Merit):
    """A strategy whose `start` calls Merit's."""

    def start(self, *args: Any, **settings: Any) -> Result:  # type: ignore[override]
        return super().start(*args, **settings)


NOTHING: Mapping[str, tuple[Any, str]] = {
    "no rows": (make_app(lambda place: {"num-examples": 0}), "all 3 clients were left out"),
    "no change": (make_app(plain, move=lambda place, arrays: arrays), "every ClientApp returned the model"),
}


@pytest.mark.parametrize("reason", NOTHING)
@pytest.mark.parametrize("kind", [Merit, OwnLoop, Forwarding])
def test_no_run_ends_in_silence_without_learning(kind: type[Merit], reason: str):
    app, says = NOTHING[reason]
    with pytest.raises(RunFailed, match=rf"nothing was learned: no round of 2 changed the model\. .*{says}"):
        start(kind(**SETTINGS), app, 2, evaluate_fn=lambda *_: None)


def test_under_flowers_wrapper_whose_end_is_not_known_the_first_round_must_learn():
    wrapper: Any = DifferentialPrivacyServerSideFixedClipping(Merit(**SETTINGS), 0.0, 10.0, NODES)
    with pytest.raises(RunFailed, match=r"nothing was learned: no round of 1 changed the model"):
        start(wrapper, NOTHING["no rows"][0], 2)


@pytest.mark.parametrize("kind", [Merit, OwnLoop, Forwarding])
def test_the_servers_results_are_kept_whoever_loops_over_the_rounds(kind: type[Merit]):
    strategy = kind(**SETTINGS)
    result = start(strategy, make_app(plain), 2, evaluate_fn=lambda number, _: MetricRecord({"auc": 0.1 * number}))
    assert [record.audit[SERVER]["auc"] for record in strategy.records] == pytest.approx([0.1, 0.2])
    assert all(record.seconds["train"] > 0 for record in strategy.records)
    assert result.arrays["weight"].numpy()[0, 0] > 2


def test_the_log_fits_into_80_columns(caplog: pytest.LogCaptureFixture):
    start(Merit(prioritized("LD", "DS"), **SETTINGS), make_app(rich))
    told = [record.getMessage() for record in caplog.records if " got " in record.getMessage()]
    assert len(told) == NODES
    for first, *more in (message.splitlines() for message in told):
        assert len(f"INFO :      {first}".expandtabs()) <= 80
        assert all(len(line) <= 80 and line.startswith(" " * 18) for line in more)
        assert more


def test_a_strategy_that_skips_configure_train_is_told_what_to_call():
    class Own(Merit):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return []

    with pytest.raises(RunFailed, match=r"was not called in round 1; .* must call super\(\)\.configure_train"):
        start(Own(), make_app(plain))


def test_a_subclass_that_reads_replies_gets_their_arrays():
    class Own(Merit):
        shapes: tuple[Any, ...] = ()

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            replies = list(replies)
            self.shapes = tuple(reply.content["arrays"]["weight"].shape for reply in replies)
            return super().aggregate_train(server_round, replies)

    strategy = Own(**SETTINGS)
    start(strategy, make_app(plain))
    assert [tuple(shape) for shape in strategy.shapes] == [(2, 2)] * NODES


def test_messages_in_process_are_copies():
    kept = list[Arrays]()

    def move(place: int, arrays: Arrays) -> Arrays:
        kept.append({"weight": np.ones((2, 2), np.float32)})
        return kept[-1]

    def spoil(message: Message, context: Context, call: Any) -> Message:
        reply = call(message, context)
        message.content["arrays"].clear()  # what a node does to its message is its own affair
        return reply

    start(Merit(**SETTINGS), make_app(plain, move=move, mods=[spoil]), rounds=2)
    assert all((arrays["weight"] == 1).all() for arrays in kept)
    assert len(kept) == 2 * NODES


def test_an_untested_version_warns_in_merit_and_is_refused_by_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cli: CommandLine
):
    monkeypatch.setattr(versions, "NEWEST", "1.2")
    versions.warn_if_untested.cache_clear()
    Merit()
    Merit()
    assert len([record for record in caplog.records if "install flwr==1.2.*" in record.getMessage()]) == 1
    refused = cli("flower", "run", "nothing.toml", "--loopback")
    assert refused.code == 2
    assert "pip install 'flwr==1.2.*'" in refused.err.replace("\n", " ")
    versions.warn_if_untested.cache_clear()
