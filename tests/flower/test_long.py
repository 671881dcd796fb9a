"""Ten real SuperNodes, and every recipe on simulation and deployment; `make test-flower` runs these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmerit import Run, run_config
from fedmerit.config.schema import make_config
from fedmerit.flower.loopback import loopback
from fedmerit.flower.start import write_app
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
