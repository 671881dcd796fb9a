"""Whole runs, resumed runs and runs on Flower's messages give the bits that were recorded for them.

A hash changes only in a commit that changes nothing else, and that names the case and the reason:

    PYTHONPATH=tests:tests/golden python tests/golden/test_golden_rounds.py CASE ...

records the named cases (all without a name) for the instruction set of this machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context
from golden_rounds import CONFIGS, RECIPES, digest, instructions, settings, weights
from helpers import stopped_and_resumed

from fedmerit import Run, run_config, run_on
from fedmerit.config.schema import Config
from fedmerit.flower import GridFleet, InProcessGrid, make_client_app
from fedmerit.tasks.registry import ClientHalf, make_task

RECORDED = Path(__file__).with_name("round_hashes.json")
BY_FACTS = (
    "fedavg",
    "last_answers",
    "pmcfl",
    "bounded",
    "adaptive",
    "fedamp",
    "ditto",
    "geometric_median",
    "scaffold",
    "feddyn",
    "yogi",
)
"""Cases whose weights are made of reported facts only, which no rounding of a model changes."""
ON_FLOWER = (
    *(
        "fedavg",
        "bounded",
        "dafl",
        "adaptive",
        "m2f_bounded",
        "fedval",
        "last_answers",
        "robust_aligned",
        "robust_server",
    ),
    *("ifca_adam", "shapley", "scaffold", "private", "schedule"),
)
"""A case of each kind; `tests/contract` tries all recipes. A node trains one client at a time, which rounds otherwise.
"""

WITH_WORKERS = ("pmcfl", "dafl_random", "adaptive", "m2f", "fedval", "ifca", "ditto", "fedamp")
"""A case of each way in which clients are asked for something."""


def on_flower(config: Config, folder: Path) -> Run:
    """The run on Flower's messages, within this process."""
    task = make_task(config)

    def half(context: Context) -> ClientHalf:
        return task.client(int(context.node_config["partition-id"]))

    grid = InProcessGrid(make_client_app(half), len(task.federation.names))
    fleet = GridFleet(grid, task.server(), attackers=task.attackers)
    fleet.meet(len(task.federation.names))
    return run_on(fleet, config, folder)


def check(case: str, folder: Path, model: np.ndarray, fleet: str = "local") -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if instructions() in recorded["hashes"]:
        assert digest(folder, model) == recorded["hashes"][instructions()][fleet][case]
        return
    if case in BY_FACTS:
        np.testing.assert_allclose(weights(folder), recorded["weights"][case], rtol=0, atol=1e-12)
    pytest.skip(f"no bits are recorded for {instructions()}; weights that follow from facts alone were compared")


@pytest.mark.parametrize("case", [*RECIPES, *CONFIGS])
def test_a_run_gives_the_recorded_bits(case: str, tmp_path: Path) -> None:
    run = run_config(settings(case), tmp_path / "run")
    check(case, tmp_path / "run", run.model)


def expected(case: str, folder: Path) -> str:
    """The recorded hash of a case, or that of a run in this folder where none is recorded for this machine."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["hashes"].get(instructions())
    return recorded["local"][case] if recorded else digest(folder, run_config(settings(case), folder).model)


@pytest.mark.parametrize("case", [*RECIPES, *CONFIGS])
def test_a_resumed_run_gives_the_bits_of_a_run_that_was_not_stopped(case: str, tmp_path: Path) -> None:
    run = stopped_and_resumed(settings(case), tmp_path / "run")
    assert digest(tmp_path / "run", run.model) == expected(case, tmp_path / "whole")


@pytest.mark.parametrize("case", WITH_WORKERS)
def test_two_workers_give_the_bits_of_one(case: str, tmp_path: Path) -> None:
    config = settings(case)
    run = run_config(config.model_copy(update={"run": config.run.model_copy(update={"workers": 2})}), tmp_path / "run")
    assert digest(tmp_path / "run", run.model) == expected(case, tmp_path / "whole")


@pytest.mark.parametrize("case", ON_FLOWER)
def test_flowers_messages_give_the_recorded_bits(case: str, tmp_path: Path) -> None:
    run = on_flower(settings(case), tmp_path / "run")
    check(case, tmp_path / "run", run.model, "flower")


def record(cases: list[str]) -> None:
    """Write down the hashes of this machine, and the weights of cases by facts."""
    kept = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"hashes": {}, "weights": {}}
    hashes = kept["hashes"].setdefault(instructions(), {"local": {}, "flower": {}})
    for case in cases:
        with tempfile.TemporaryDirectory() as home:
            local, flower = Path(home) / "local", Path(home) / "flower"
            hashes["local"][case] = digest(local, run_config(settings(case), local).model)
            if case in BY_FACTS:
                kept["weights"][case] = weights(local)
            if case in ON_FLOWER:
                hashes["flower"][case] = digest(flower, on_flower(settings(case), flower).model)
    RECORDED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1:] or [*RECIPES, *CONFIGS])
