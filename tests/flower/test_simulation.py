"""Flower's simulation (Ray): the same recipe and task give the local run's weights and model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedmerit import Run, run_config
from fedmerit.config import load_config
from fedmerit.flower.loopback import QUIET

NODES = 4
TOML = f"""
[task]
data = "digits"
partition = "dirichlet"
alpha = 1.0
clients = {NODES}
validation = 0.2
[train]
lr = 0.5
epochs = 2
[recipe]
name = "m2f"
priority = ["Participation", "SimulatedComputation", "DataRatio"]
[run]
rounds = 2
workers = 1
[run.schedule]
epochs = [1, 3]
"""
SCRIPT = """
import sys
from functools import lru_cache
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from fedmerit.config import load_config
from fedmerit.flower import ClientSide, GridFleet, make_client_app
from fedmerit.run import run_on
from fedmerit.tasks.task import make_task

config = load_config(sys.argv[1])
out = Path(sys.argv[2])


def side(context):
    task = make_task(config.task, config.train, config.run.seed)
    return ClientSide.of(task, int(context.node_config["partition-id"]))


server = ServerApp()


@server.main()
def main(grid, context):
    task = make_task(config.task, config.train, config.run.seed)
    fleet = GridFleet(grid, task.learner, task.federation.names, timeout=120)
    fleet.meet(len(task.federation.names))
    run_on(fleet, config, out)


resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
run_simulation(server, make_client_app(side), num_supernodes=int(sys.argv[3]), backend_config=resources)
"""


def test_the_simulation_gives_the_local_runs_weights(tmp_path: Path):
    (tmp_path / "config.toml").write_text(TOML)
    (tmp_path / "simulate.py").write_text(SCRIPT)
    arguments = [tmp_path / "simulate.py", tmp_path / "config.toml", tmp_path / "out", NODES]
    environment = os.environ | QUIET | {"FLWR_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (tmp_path / "out" / "model.safetensors").exists(), done.stderr[-3000:]
    theirs, ours = Run.load(tmp_path / "out"), run_config(load_config(tmp_path / "config.toml"), tmp_path / "local")
    assert np.abs(theirs.model - ours.model).max() < 1e-5
    for round in (1, 2):
        ids = [one.id for one in theirs.explain(round)]
        assert ids == [one.id for one in ours.explain(round)] == list(range(NODES))
        assert [one.weight for one in theirs.explain(round)] == pytest.approx(
            [one.weight for one in ours.explain(round)]
        )
        assert [one.group for one in theirs.explain(round)] == [one.group for one in ours.explain(round)]
        rewards = [[(r.client, r.entries, r.accepted) for r in run.ledger.rewards(round)] for run in (theirs, ours)]
        assert rewards[0] == rewards[1]
    assert theirs.local_accuracy == pytest.approx(ours.local_accuracy)
