"""Ten real SuperNodes, kills of SuperLink and ServerApp, every recipe on every fleet; see `make test-flower`."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from fedmerit import Run, run_config
from fedmerit.config.schema import make_config
from fedmerit.flower.loopback import Loopback, loopback
from fedmerit.flower.start import write_app
from fedmerit.store.ledger import Ledger
from reproductions.experiments import flower as experiment

pytestmark = pytest.mark.long
NODES = 10


def test_every_recipe_on_every_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(experiment, "RUNS", tmp_path)
    experiment.conform()
    for recipe in experiment.RECIPES:
        for fleet in experiment.FLEETS[1:]:
            local, other = (experiment.folder_of(recipe, one) for one in ("local", fleet))
            weights, models = experiment.differences(local, other)
            assert weights < 1e-6, (recipe, fleet)
            assert models < 1e-5, (recipe, fleet)


def test_ten_supernodes_two_of_which_are_killed(tmp_path: Path):
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES, "validation": 0.2}
    recipe = {"name": "device_aware", "criteria": ["LD", "DS"], "normalise": "max", "search": {"tolerance": 0.0}}
    run = {"rounds": 4, "fraction": 1.0, "workers": 1}
    config = make_config({"task": task, "train": {"lr": 0.5}, "recipe": recipe, "run": run})
    write_app(tmp_path / "app", config, tmp_path / "out")
    with loopback(tmp_path, NODES) as made:
        made.run(tmp_path / "app")
        made.wait_for("run", "fedmerit: round 2", 1800)
        made.kill("node3")
        made.kill("node8")
        made.wait_for("run", "kept in", 1800)
    theirs, ours = Run.load(tmp_path / "out"), run_config(config, tmp_path / "local")
    for round in (1, 2):
        weights = [one.weight for one in ours.explain(round)]
        assert [one.weight for one in theirs.explain(round)] == pytest.approx(weights, abs=1e-6)
    assert {event.client for event in theirs.events() if event.kind == "left-out"} == {3, 8}
    assert [one.id for one in theirs.explain(4)] == [0, 1, 2, 4, 5, 6, 7, 9]
    assert np.isfinite(theirs.model).all()


def test_a_killed_superlink_and_a_killed_serverapp(tmp_path: Path):
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": 2}
    recipe = {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"}
    run = {"rounds": 4, "fraction": 1.0, "workers": 1}
    config = make_config({"task": task, "train": {"lr": 0.5}, "recipe": recipe, "run": run})
    out = tmp_path / "out"
    write_app(tmp_path / "app", config, out)
    with loopback(tmp_path, 2, lasting=True) as made:
        made.run(tmp_path / "app")
        wait_for_round(out, 1)
        made.kill("superlink")
        made.superlink()
        wait_for_round(out, 2)
        assert not (out / "model.safetensors").exists()
        kill_serverapp(made)
        before = Ledger.open(out / "ledger.db").last_round()
        made.run(tmp_path / "app", "second run")
        made.wait_for("second run", "kept in", 400)
        assert f"fedmerit: round {before + 1}," in made.log("second run")
        assert "fedmerit: round 1," not in made.log("second run")
    theirs, ours = Run.load(out), run_config(config, tmp_path / "local")
    assert [row["round"] for row in theirs.ledger.rounds()] == [1, 2, 3, 4]
    assert np.abs(theirs.model - ours.model).max() < 1e-5
    for round in (1, 2, 3, 4):
        weights = [one.weight for one in ours.explain(round)]
        assert [one.weight for one in theirs.explain(round)] == pytest.approx(weights)


def wait_for_round(out: Path, round: int, seconds: float = 400.0) -> None:
    ends = time.monotonic() + seconds
    while not ((out / "ledger.db").exists() and Ledger.open(out / "ledger.db").last_round() >= round):
        assert time.monotonic() < ends, f"round {round} never came"
        time.sleep(0.2)


def kill_serverapp(made: Loopback) -> None:
    """The ServerApp is a child of the SuperExec, in its process group."""
    group = made.processes["superexec"].pid
    listed = subprocess.run(["ps", "-eo", "pid,pgid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    found = [int(pid) for pid, pgid, args in rows if int(pgid) == group and "flwr-serverapp" in args]
    assert found, listed
    for pid in found:
        os.kill(pid, signal.SIGKILL)
