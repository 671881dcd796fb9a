"""Merit with a folder and names: a ledger that people can read, resumed after the ServerApp died."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from helpers import CommandLine
from safetensors.numpy import load_file
from small_app import Arrays, everybody, make_app

from fedmerit import DS, LD, Recipe, Run, device_aware, fedavg, prioritized
from fedmerit.core.server.optimizers import Momentum
from fedmerit.core.server.server import Server
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower import InProcessGrid, Merit, facts

NODES = 4
NAMES = ("north", "east", "south", "west")
SETTINGS = everybody(NODES)
RECIPES = {
    "prioritized": prioritized(LD, DS, normalise="max"),
    "searched": device_aware(LD, DS, normalise="max"),
    "momentum": replace(fedavg(), server=Server(optimizer=Momentum(momentum=0.5))),
}


def app_with(claims: Any = range(NODES)) -> ClientApp:
    """Nodes that claim these partitions."""

    def train(place: int) -> dict[str, Any]:
        labels = np.arange(10 + 5 * place) % (2 + place)
        claim = {} if claims[place] is None else {"partition-id": claims[place]}
        return {"num-examples": len(labels), **facts(labels, 6), **claim}

    def test(place: int, model: Arrays) -> dict[str, Any]:
        return {"num-examples": 100, "accuracy": float(1 / (1 + np.exp(-model["weight"].mean() / 10)))}

    return make_app(train, test, lambda place, model: {**model, "weight": model["weight"] + np.float32(place + 1)})


def start(strategy: Merit, rounds: int, app: ClientApp | None = None) -> ArrayRecord:
    first = ArrayRecord({"weight": Array(np.zeros((2, 2), np.float32)), "steps": Array(np.array(3, np.int64))})
    return strategy.start(InProcessGrid(app or app_with(), NODES), first, num_rounds=rounds).arrays


def merit(recipe: Recipe, out: Path | None = None, names: Any = NAMES) -> Merit:
    return Merit(recipe, out=out, names=names, **SETTINGS)


def test_the_folder_tells_names_weights_and_reasons(cli: CommandLine, tmp_path: Path, caplog: pytest.LogCaptureFixture):
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


@pytest.mark.parametrize("claim", [None, 0, 17, -1, 1.0])
def test_a_node_that_is_nobody_is_left_out_and_the_ledger_says_so(claim: Any, tmp_path: Path):
    start(merit(fedavg(), tmp_path / "a"), 1, app_with([0, 1, 2, claim]))
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
