"""Real SuperLink, real SuperNodes: the same weights and model as on this machine; who dies, lies or shouts is named."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import processes_of

from fedmerit import Run, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import NAME, loopback
from fedmerit.flower.start import on_superlink

NODES, SCALES, LIES, DIES, ALONE = 4, 0, 2, 2, 3


def settings(rounds: int) -> Config:
    task: dict[str, Any] = {
        "data": "digits",
        "partition": "dirichlet",
        "alpha": 1.0,
        "clients": NODES,
        "validation": 0.2,
    }
    task["attack"] = [{"kind": "liar", "share": 0.25, "facts": {"samples": 4.0}}, {"kind": "scale", "share": 0.25}]
    recipe: dict[str, Any] = {
        "name": "device_aware",
        "criteria": ["LD", "DS"],
        "normalise": "max",
        "search": {"tolerance": 0.0},
    }
    recipe |= {"limits": [{"name": "cap", "times": 2.0}]}
    recipe |= {"stages": [{"name": "claims", "k": 2.0}, {"name": "clip"}]}
    run = {"rounds": rounds, "fraction": 1.0, "workers": 1, "evaluate_every": rounds}  # an exchange takes seconds
    return make_config({"task": task, "train": {"lr": 0.5}, "recipe": recipe, "run": run})


def test_supernodes_give_the_local_runs_weights_though_one_dies_lies_scales_or_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = settings(rounds=3)
    said, begun = list[str](), threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "fedmerit: round 1" in line:
            begun.set()

    with loopback(tmp_path, NODES, forked=True, started=False) as made, ThreadPoolExecutor(1) as thread:
        for place in range(NODES):
            made.forked = place != ALONE  # that one as on a machine of its own, with its own fork server
            made.supernode(place)
        made.forked = True
        made.wait_for("node1", "SuperNode ID", 120)
        made.start_supernode("again", made.configs[1], *made.trust())  # client 1, twice
        for name in (*(f"node{place}" for place in range(NODES)), "again"):
            made.wait_for(name, "SuperNode ID", 120)
        monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
        submitted = thread.submit(on_superlink, config, tmp_path / "out", say, superlink=NAME)
        assert begun.wait(600), said
        made.kill(f"node{DIES}")
        submitted.result(600)  # it raises unless Flower says that the run was completed
    assert processes_of(tmp_path) == {}
    theirs, ours = Run.load(tmp_path / "out"), run_config(config, tmp_path / "local")
    assert [one.weight for one in theirs.explain(1)] == pytest.approx([one.weight for one in ours.explain(1)], abs=1e-6)
    assert [one.id for one in theirs.explain(1)] == [0, 1, 2, 3]
    assert [one.quality for one in theirs.ledger.candidates(1)] == [one.quality for one in ours.ledger.candidates(1)]
    assert [row["round"] for row in theirs.ledger.rounds()] == [1, 2, 3]
    named = {event.client for event in theirs.events() if event.kind == "left-out"}
    assert named == {DIES}
    assert [one.id for one in theirs.explain(3)] == [0, 1, 3]
    assert np.isfinite(theirs.model).all()
    told = "\n".join(said)
    assert f"fedmerit: client {LIES} claims samples 1052, which counts as 736" in told
    assert f"the longest, of client {SCALES}, to " in told
    assert next(one for one in theirs.explain(1) if one.id == LIES).facts["samples"] == 736


PARENT = """
import sys, time
from pathlib import Path
from fedmerit.flower.loopback import NAME, loopback
with loopback(Path(sys.argv[1]), 2, forked=True):
    print("all are there", flush=True)
    time.sleep(600)
"""


def test_a_killed_parent_leaves_no_process_of_its_deployment(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout.readline() == "all are there\n"
            there = processes_of(tmp_path)
            assert len(there) >= 6, there  # a fork server, a SuperLink with its SuperExec, two SuperNodes with theirs
        finally:
            parent.kill()
    ends = time.monotonic() + 60
    while processes_of(tmp_path) and time.monotonic() < ends:
        time.sleep(0.1)
    assert processes_of(tmp_path) == {}
