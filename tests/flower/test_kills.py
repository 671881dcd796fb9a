"""kill -9 of the SuperLink and of the ServerApp on a deployment that is made to last: the run comes to its end."""

from __future__ import annotations

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

pytestmark = pytest.mark.long
NODES = 2


def test_a_killed_superlink_and_a_killed_serverapp(tmp_path: Path):
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES}
    recipe = {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"}
    run = {"rounds": 4, "fraction": 1.0, "workers": 1}
    config = make_config({"task": task, "train": {"lr": 0.5}, "recipe": recipe, "run": run})
    out = tmp_path / "out"
    write_app(tmp_path / "app", config, out)
    with loopback(tmp_path, NODES, lasting=True) as made:
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
