"""Flower's simulation (Ray): the same recipe and task give the local run's weights and model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fedmerit import Run, run_config
from fedmerit.config.schema import load_config
from fedmerit.flower.supernode import BIN

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
criteria = ["Participation", "SimulatedComputation", "DataRatio"]
[run]
rounds = 2
workers = 1
[run.schedule]
epochs = [1, 3]
"""


def test_the_simulation_gives_the_local_runs_weights(tmp_path: Path):
    (tmp_path / "config.toml").write_text(TOML)
    command = [BIN / "fedmerit", "flower", tmp_path / "config.toml", "--simulation", "--out", tmp_path / "out"]
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"FLWR_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
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
