"""Three apps in the shape of Flower's own examples, with Merit in place of FedAvg, and what it asks of them.

`Merit()` needs no other change. A recipe that needs facts stops in the first round with the line to add; with that line
the apps run. In one process here; the long tests repeat it on Flower's simulation and on a deployment.
"""

import importlib
import json
import os
import random
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from helpers import CommandLine

import fedmerit
from fedmerit import Run
from fedmerit.errors import ConfigError
from fedmerit.flower import InProcessGrid
from fedmerit.flower.loopback import HOST, LINK, Loopback, loopback, write_connection

HERE, NODES = Path(__file__).with_name("apps"), 2
PACKAGES = {
    "quickstart-torch": "torchquick",
    "quickstart-sklearn": "sklearnquick",
    "advanced-torch": "torchadvanced",
}
LABELS = {
    "quickstart-torch": ("len(trainloader.dataset)}", "[int(y) for _, y in trainloader.dataset], 10"),
    "quickstart-sklearn": ('len(x),\n        "train_logloss"', "y, 3"),
    "advanced-torch": ("len(y)}\n    content", "y, 10"),
}
"""Where each app's train function reports `num-examples`, and the arguments of the `facts` to add there."""
RECIPE = 'prioritized("label diversity", "dataset size")'


def swap(folder: Path, arguments: str) -> None:
    """Change the server line: Merit in place of FedAvg."""
    (path,) = folder.glob("*/server_app.py")
    text = path.read_text().replace("strategy import FedAvg, Result", "strategy import Result")
    text = text.replace("from flwr.serverapp.strategy import FedAvg\n", "").replace("(FedAvg)", "(Merit)")
    imports = "\nfrom fedmerit import device_aware, prioritized\nfrom fedmerit.flower import Merit\nfrom flwr.app"
    text = text.replace("\nfrom flwr.app", imports, 1)
    for called, now in (("strategy = FedAvg(", "strategy = Merit("), ("strategy = CustomFedAvg(",) * 2):
        text = text.replace(called, f"{now}{arguments}, ")
    path.write_text(text)


def add_line(folder: Path) -> None:
    """Add the line that the error names to the ClientApp."""
    (path,) = folder.glob("*/client_app.py")
    place, arguments = LABELS[folder.name]
    assert path.read_text().count(place) == 1
    end = place.index(")") + 1
    text = path.read_text().replace(place, f"{place[:end]}, **facts({arguments}){place[end:]}")
    path.write_text(text.replace("\nfrom flwr.app", "\nfrom fedmerit.flower import facts\nfrom flwr.app", 1))


@pytest.fixture
def copy_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Copy an app; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    paths = [str(Path(fedmerit.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))  # processes import the tree under test

    def copied(name: str) -> Path:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        return shutil.copytree(HERE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    yield copied
    forget_apps()


def forget_apps() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES.values()]:
        del sys.modules[name]


def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an app in this process, with its own settings."""
    forget_apps()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a changed module within the same second is read again
    settings = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        server, client = (
            importlib.import_module(f"{PACKAGES[folder.name]}.{half}_app").app for half in ("server", "client")
        )
    random.seed(1)  # Flower draws the order of the nodes
    torch.manual_seed(1)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    server(InProcessGrid(client, NODES, settings), context)


def saved_model() -> list[np.ndarray]:
    if Path("final_model.npz").exists():
        return list(np.load("final_model.npz").values())
    return [tensor.numpy() for tensor in torch.load("final_model.pt", weights_only=True).values()]


@pytest.mark.parametrize("name", PACKAGES)
def test_only_the_server_line_changes(
    name: str, copy_app: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: CommandLine
):
    start(copy_app(name), monkeypatch)
    theirs = saved_model()
    app = copy_app(name)
    swap(app, 'out="runs/fedavg"')
    start(app, monkeypatch)
    for ours, expected in zip(saved_model(), theirs, strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)
    assert Run.load(tmp_path / "runs/fedavg").accuracy > 0.2

    app = copy_app(name)
    swap(app, f'{RECIPE}, out="runs/weighted"')
    with pytest.raises(ConfigError, match=r"(?s)no node reports `labels`.*.*len\(y\), \*\*facts\(y, classes\)"):
        start(app, monkeypatch)
    add_line(app)
    start(app, monkeypatch)
    run = Run.load(tmp_path / "runs/weighted")
    assert [row["round"] for row in run.ledger.rounds()] == [1, 2]
    assert {weight.facts["labels"] for weight in run.explain(2)} <= {2.0, 3.0, *map(float, range(4, 11))}
    assert run.ledger.audits(2)
    assert cli("report", tmp_path / "runs/weighted", "--text").code == 0


def test_a_search_reads_the_accuracy_under_the_apps_name(
    copy_app: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    app = copy_app("quickstart-torch")
    swap(app, 'device_aware("label diversity", "dataset size"), out="runs/a"')
    add_line(app)
    start(app, monkeypatch)
    ledger = Run.load(tmp_path / "runs/a").ledger
    assert all(one.quality is not None for one in ledger.candidates(2) if one.exchange)
    names = {(client, objective) for _, client, objective, _ in ledger.audits(2)}
    assert names == {(client, name) for client in range(NODES) for name in ("eval_acc", "eval_loss")} | {
        (-1, "accuracy"),
        (-1, "mean loss"),
    }


def test_the_app_of_the_guide_logs_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    page = (Path(__file__).parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")
    code, shown = (re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S)[0] for kind in ("python", "text"))
    monkeypatch.chdir(tmp_path)
    app: dict[str, Any] = {}
    exec(code, app)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    app["server"](InProcessGrid(app["client"], 3), context)
    assert " ".join(shown.split()) in " ".join(caplog.text.split())
    assert Run.load(tmp_path / "runs/digits").accuracy > 0.7


@pytest.fixture(params=["simulation", "deployment"])
def federation(request: pytest.FixtureRequest, tmp_path: Path, copy_app: object) -> Iterator[Loopback]:
    """A SuperLink with two simulated SuperNodes, or with two real ones, in the folder to which `copy_app` changes."""
    if request.param == "deployment":
        with loopback(tmp_path / "link", NODES) as made:
            yield made
        return
    (tmp_path / "link").mkdir()
    made = Loopback(tmp_path / "link")
    write_connection(made.folder / "home", made.address, None)
    try:
        made.start(LINK, "flower-superlink", "--insecure", "--simulation", "--host", HOST, "--port", str(made.port))
        made.wait_for(LINK, "Uvicorn running", 180)
        yield made
    finally:
        made.end()


@pytest.mark.long
@pytest.mark.parametrize("name", PACKAGES)
def test_on_flowers_engines(name: str, federation: Loopback, copy_app: Callable[[str], Path], tmp_path: Path):
    def run(label: str, arguments: str, *, line: bool = False) -> str:
        app = copy_app(name)
        swap(app, f'{arguments}out="{tmp_path}/{label}"')
        if line:
            add_line(app)
        federation.run(app, label)
        federation.processes[label].wait(600)
        return federation.log(label)

    run("fedavg", "")
    assert [row["round"] for row in Run.load(tmp_path / "fedavg").ledger.rounds()] == [1, 2]
    stopped = run("stops", f"{RECIPE}, ")
    assert "no node reports `labels`" in stopped
    assert "**facts(y, classes)" in stopped
    run("weighted", f"{RECIPE}, ", line=True)
    ledger = Run.load(tmp_path / "weighted").ledger
    assert [row["round"] for row in ledger.rounds()] == [1, 2]
    assert ledger.meta()["app"] == f"fedmerit/{name}"
    runs = json.loads(federation.call("flwr", "list", "here", "--format", "json"))["runs"]
    assert sorted(one["status"] for one in runs) == ["finished:completed", "finished:completed", "finished:failed"]
