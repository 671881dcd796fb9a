"""Flower's simulation (Ray): the same recipe and task give the local run's weights and model."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
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


def simulate(folder: Path, *options: object, **environment: str) -> None:
    """Run the configuration in Flower's simulation, into the folder's `out`."""
    command = (BIN / "fedmerit", "flower", folder / "config.toml", "--simulation", "--out", folder / "out", *options)
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | {"FLWR_HOME": str(folder / "home")} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / "out" / "model.safetensors").exists(), done.stderr[-3000:]


def test_the_simulation_gives_the_local_runs_weights(tmp_path: Path):
    (tmp_path / "config.toml").write_text(TOML)
    simulate(tmp_path)
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


@pytest.mark.long
def test_an_existing_ray_cluster_and_cpus_per_client(tmp_path: Path):
    """RAY_ADDRESS names the cluster; clients that need all of its CPUs run one at a time, in one actor."""
    (tmp_path / "config.toml").write_text(TOML.replace("rounds = 2", "rounds = 1"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["start", "--head", "--block", "--num-cpus", "2", "--include-dashboard", "false", "--disable-usage-stats"]
    temp = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # Ray's sockets need short paths
    with (tmp_path / "head.log").open("wb") as log:
        command = [str(BIN / "ray"), *words, "--port", str(port), "--temp-dir", str(temp)]
        head = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        ends = time.monotonic() + 120
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert time.monotonic() < ends, (tmp_path / "head.log").read_text()
            time.sleep(0.2)
        simulate(tmp_path, "--client-cpus", 2, RAY_ADDRESS=f"127.0.0.1:{port}")
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)
    actors = list(temp.glob("session_2*/logs/worker-*-01000000-*.out"))  # of the first job of this cluster
    shutil.rmtree(temp, ignore_errors=True)
    assert len(actors) == 1
