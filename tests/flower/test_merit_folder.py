"""Merit with a folder and names: a ledger that people can read, resumed after the ServerApp died."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from helpers import CommandLine
from safetensors.numpy import load_file

from fedmerit import DS, LD, Recipe, Run, device_aware, fedavg, prioritized
from fedmerit.core.server.optimizers import Momentum
from fedmerit.core.server.server import Server
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower import InProcessGrid, Merit, facts

NODES = 4
NAMES = ("north", "east", "south", "west")
SETTINGS = {"min_train_nodes": NODES, "min_available_nodes": NODES, "min_evaluate_nodes": NODES}
RECIPES = {
    "prioritized": prioritized(LD, DS, normalise="max"),
    "searched": device_aware(LD, DS, normalise="max"),
    "momentum": replace(fedavg(), server=Server(optimizer=Momentum(momentum=0.5))),
}


def make_app(claims: Any = None) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        model = message.content["arrays"]["weight"].numpy()
        labels = np.arange(10 + 5 * place) % (2 + place)
        told = {"num-examples": len(labels), **facts(labels, 6)}
        claim = place if claims is None else claims[place]
        told |= {} if claim is None else {"partition-id": claim}
        trained = ArrayRecord(
            {"weight": Array(model + np.float32(place + 1)), "steps": message.content["arrays"]["steps"]}
        )
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord(told)}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        accuracy = float(1 / (1 + np.exp(-message.content["arrays"]["weight"].numpy().mean() / 10)))
        return Message(RecordDict({"m": MetricRecord({"num-examples": 100, "accuracy": accuracy})}), reply_to=message)

    return app


def start(strategy: Merit, rounds: int, app: ClientApp | None = None) -> ArrayRecord:
    first = ArrayRecord({"weight": Array(np.zeros((2, 2), np.float32)), "steps": Array(np.array(3, np.int64))})
    return strategy.start(InProcessGrid(app or make_app(), NODES), first, num_rounds=rounds).arrays


def merit(recipe: Recipe, out: Path | None = None, names: Any = NAMES) -> Merit:
    return Merit(recipe, out=out, names=names, **SETTINGS)


def test_the_folder_tells_names_weights_and_reasons(cli: CommandLine, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="flwr"):
        start(merit(RECIPES["prioritized"], tmp_path / "a"), 2)
    told = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("\t> west got ") and "because" in line for line in told)
    run = Run.load(tmp_path / "a")
    assert run.ledger.names() == list(NAMES)
    assert [one.id for one in run.explain(2)] == [0, 1, 2, 3]
    plain = Merit(RECIPES["prioritized"], **SETTINGS)
    start(plain, 2)
    assert [one.weight for one in run.explain(2)] == [one.weight for one in plain.explain(2)]
    assert run.accuracy == pytest.approx(run.ledger.rounds()[-1]["accuracy"])
    assert run.ledger.local_accuracy()[1].shape == (2, NODES)
    assert load_file(tmp_path / "a" / "model.safetensors")["weight"].shape == (2, 2)
    assert "west got" in cli("explain", tmp_path / "a", "--client", "west").out.replace("\n", " ")
    assert cli("report", tmp_path / "a", "--text").code == 0
    assert cli("report", tmp_path / "a", "--out", tmp_path / "a.html").code == 0
    assert "west" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_whose_serverapp_died_goes_on_to_the_same_bits(recipe: str, tmp_path: Path):
    whole = start(merit(RECIPES[recipe], tmp_path / "whole"), 4)
    broken = merit(RECIPES[recipe], tmp_path / "broken")
    start(broken, 2)
    del broken
    again = merit(RECIPES[recipe], tmp_path / "broken")
    resumed = start(again, 4)
    assert all((whole[name].numpy() == resumed[name].numpy()).all() for name in whole)
    assert [record.index for record in again.records] == [3, 4]
    ledgers = [Run.load(tmp_path / name).ledger for name in ("whole", "broken")]
    for number in (1, 2, 3, 4):
        assert ledgers[0].weights(number) == ledgers[1].weights(number)
    kept = [[{**row, "seconds": 0} for row in ledger.rounds()] for ledger in ledgers]
    assert kept[0] == kept[1]


def test_a_finished_run_is_told_again_and_not_played(tmp_path: Path):
    first = start(merit(fedavg(), tmp_path / "a"), 2)
    again = merit(fedavg(), tmp_path / "a")
    assert (start(again, 2)["weight"].numpy() == first["weight"].numpy()).all()
    assert again.records == []


def test_nodes_are_numbered_as_they_come_where_nobody_names_them(tmp_path: Path):
    start(merit(fedavg(), tmp_path / "a", names=()), 1)
    assert Run.load(tmp_path / "a").ledger.names() == ["node 1", "node 2", "node 3", "node 4"]
    start(merit(fedavg(), tmp_path / "b", names={1002: "the third"}), 1)
    assert Run.load(tmp_path / "b").ledger.names() == ["node 1", "node 2", "the third", "node 4"]


@pytest.mark.parametrize("claim", [None, 0, 17, -1, 1.0])
def test_a_node_that_is_nobody_is_left_out_and_the_ledger_says_so(claim: Any, tmp_path: Path):
    start(merit(fedavg(), tmp_path / "a"), 1, make_app([0, 1, 2, claim]))
    run = Run.load(tmp_path / "a")
    assert [one.id for one in run.explain(1)] == [0, 1, 2]
    (event,) = [event for event in run.events() if event.kind == "stranger"]
    assert event.text.startswith("node 1003, which is not a named client, was left out: ")


def test_another_run_is_not_continued(tmp_path: Path):
    start(merit(fedavg(), tmp_path / "a"), 1)
    with pytest.raises(FolderError, match="has a run with another recipe"):
        merit(RECIPES["prioritized"], tmp_path / "a")
    with pytest.raises(FolderError, match="other client names"):
        merit(fedavg(), tmp_path / "a", names=("one", "two"))
    mine = merit(fedavg(), tmp_path / "a")
    with pytest.raises(FolderError, match="another process runs in"):
        merit(fedavg(), tmp_path / "a")
    del mine
    with pytest.raises(ConfigError, match="names of nodes must differ"):
        merit(fedavg(), names=("one", "one"))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An app in the layout that Flower makes, with our patch."""
    folder = tmp_path / "app"
    shutil.copytree(Path(__file__).with_name("fresh_app"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", "-p0", "merit.patch"], cwd=folder, check=True, env={"GIT_DIR": "/nonexistent"})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "fresh"]:
        del sys.modules[name]


def test_a_fresh_app_needs_ten_lines_for_a_folder_that_explains_itself(fresh: Path, cli: CommandLine, tmp_path: Path):
    changed = re.findall(r"^[+-](?![+-])", (fresh / "merit.patch").read_text(), re.MULTILINE)
    assert len(changed) <= 10
    from fresh.client_app import app as client  # type: ignore[import-not-found]
    from fresh.server_app import app as server  # type: ignore[import-not-found]

    assert isinstance(server, ServerApp)
    settings = {"num-server-rounds": 2, "fraction-train": 1.0}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    server(InProcessGrid(client, 3), context)
    assert "south got" in cli("explain", tmp_path / "runs/fresh", "--client", "south").out.replace("\n", " ")
    assert cli("report", tmp_path / "runs/fresh", "--text").code == 0
    assert cli("report", tmp_path / "runs/fresh", "--out", tmp_path / "page.html").code == 0
    assert Run.load(tmp_path / "runs/fresh").accuracy > 0.8
