"""A masked round on six real SuperNodes with node keys, two of which are killed between the phases."""

import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from fedmerit import Run, fedavg, federate, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import loopback
from fedmerit.flower.start import on_superlink
from fedmerit.tasks.registry import make_task

pytestmark = pytest.mark.long
NODES, DYING = 6, (1, 4)
DIES = """
import os, signal
import fedmerit.flower.kept as kept
import fedmerit.flower.clientapp as clientapp
def die(*asked):  # as if the machine failed: the SuperNode's whole process group
    os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
clientapp.upload_masked = die
"""


def test_killed_nodes_are_drop_outs_and_the_sum_is_that_of_the_others(tmp_path: Path):
    task = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES}
    run = {"rounds": 1, "fraction": 1.0, "workers": 1}
    values = {"task": task, "train": {"lr": 0.5}, "recipe": {"name": "fedavg"}, "run": run}
    config = make_config({**values, "privacy": {"masked": True}})
    patient = config.model_copy(update={"run": config.run.model_copy(update={"deadline": 150.0})})
    lines = list[str]()
    (tmp_path / "dying").mkdir()
    (tmp_path / "dying" / "sitecustomize.py").write_text(DIES)
    with loopback(tmp_path / "link", NODES, secure=True, started=False) as made:
        for place in range(NODES):
            path = os.environ.get("PYTHONPATH", "")
            path = f"{tmp_path / 'dying'}{os.pathsep}{path}" if place in DYING else path
            with mock.patch.dict(os.environ, {"PYTHONPATH": path}):
                made.supernode(place)
        for place in range(NODES):
            made.wait_for(f"node{place}", "SuperNode ID", 300)
        on_superlink(patient, tmp_path / "out", lines.append, kit=made.server.folder)
    theirs = Run.load(tmp_path / "out")
    assert {event.client for event in theirs.events() if event.kind == "left-out"} == set(DYING), lines
    weights = {one.id: one.weight for one in theirs.explain(1)}
    assert sorted(weights) == [place for place in range(NODES) if place not in DYING]
    everyone = run_config(config, tmp_path / "local")
    samples = {one.id: one.facts["samples"] for one in everyone.explain(1)}
    total = sum(samples[client] for client in weights)
    assert weights == pytest.approx({client: samples[client] / total for client in weights}, abs=0.02)
    # All clients start from one model, so the weighted mean of what each trains alone is the plain round of the four.
    alone = np.stack([trained_alone(config, client) for client in sorted(weights)])
    plain = np.array([weights[client] for client in sorted(weights)]) @ alone
    (bound,) = theirs.frame("rounds")["error"]
    unit = 2.0**-24 * NODES * np.ptp(alone, axis=0).max()
    assert 0 < bound < 1e-5
    assert np.abs(theirs.model - plain).max() <= bound + unit + np.spacing(np.abs(alone).max())


def trained_alone(config: Config, client: int) -> np.ndarray:
    """The model after a round of one client."""
    only = {client: None}
    return federate(make_task(config), fedavg(), rounds=1, selection=lambda index, clients, seed: only).model
