"""The examples run, and do what they say."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from fedmerit import DS, LD, Federation, Run, Study, federate, load_config, load_task, prioritized, run_config
from fedmerit.config.attack import KINDS
from fedmerit.config.privacy import recipe_of
from fedmerit.study.plan import load_plan
from fedmerit.tasks.data_report import DataReport
from fedmerit.tasks.registry import find_task

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("name", ["own_task", "sklearn_task", "fedavg_by_hand"])
def test_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "accuracy" in capsys.readouterr().out


def test_the_readable_twin_agrees_with_the_machinery(importable: None) -> None:
    import fedavg_by_hand

    task = load_task("digits", partition="dirichlet", clients=12, train={"lr": 0.5})
    by_hand = fedavg_by_hand.by_hand(task, rounds=4, fraction=0.5, seed=7)
    fast = federate(task, prioritized(LD, DS, normalise="max"), rounds=4, fraction=0.5, seed=7)
    assert np.allclose(by_hand, fast.model, atol=1e-5)


def test_a_task_of_ones_own_from_configuration(importable: None, tmp_path: Path) -> None:
    text = '[task]\ndata = "own_task:MOONS"\n[train]\nlr = 0.3\n[recipe]\nname = "prioritized"\n'
    text += (
        'criteria = ["attribute:calibrated", "DS"]\nnormalise = "max"\n[run]\nrounds = 2\nfraction = 0.5\nworkers = 1\n'
    )
    (tmp_path / "moons.toml").write_text(text)
    run = run_config(load_config(tmp_path / "moons.toml"), tmp_path / "run")
    assert run.ledger.names()[3] == "lab 3"
    noisy = [row for row in run.explain(1) if row.id % 3 == 0]
    assert all(row.weight == 0 for row in noisy)
    sys.modules.pop("own_task")


CONFIGURATIONS = [path for path in sorted(EXAMPLES.glob("*.toml")) if not path.stem.startswith(("study", "attack"))]


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_example_configurations_are_valid(path: Path) -> None:
    config = load_config(path)
    recipe_of(config)
    kind = find_task(config.task.data)
    assert config.task.model in kind.models
    assert config.task.partition in ("default", *kind.partitions)


def test_the_example_of_a_study_is_valid() -> None:
    plan = load_plan(EXAMPLES / "study.toml")
    assert plan.against == "FedAvg"
    assert {row.name: plan.config(row, 3).train.epochs for row in plan.rows}["FedAvg, 2 epochs"] == 2
    assert [row.null for row in plan.rows if row.recipe == plan.rows[0].recipe] == [
        False,
        False,
        True,
    ]  # a null row


@pytest.mark.parametrize("name", ["study-flipped", "study-poisoned"])
def test_the_studies_with_attackers_plan_fedavg_against_the_better_half(name: str) -> None:
    plan = load_plan(EXAMPLES / f"{name}.toml")
    assert plan.against == "FedAvg"
    assert "'top'" in repr(recipe_of(plan.config(plan.rows[-1], 1)).score)


def test_the_readme_prints_no_line_that_says_its_priority_is_idle(tmp_path: Path) -> None:
    run = run_config(load_config(EXAMPLES / "flipped.toml", ["run.rounds=3"]), tmp_path / "a")
    assert "idle-priority" not in {event.kind for event in run.events()}


def test_a_data_scientists_way(
    importable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of eight hospitals and a torch module: a study, a page, a reason and a model, in at most 25 lines."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "tasks"))
    import hospitals
    from hospital_table import write_hospitals

    file = write_hospitals(tmp_path / "hospitals.parquet")
    model = hospitals.main(str(file), str(tmp_path / "study"), seeds=2, rounds=2)
    printed = capsys.readouterr().out
    assert "CB > DS" in printed
    assert "hospital 3 got " in printed
    assert "class balance" in printed
    assert (tmp_path / "study" / "page.html").stat().st_size > 100_000
    source = (EXAMPLES / "hospitals.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    lines = [line for line in source.splitlines() if line.strip() and '"""' not in line]
    assert len(lines) <= 25
    _check_same_predictions(model, Study.load(tmp_path / "study").run("CB > DS", 1), file)


def _check_same_predictions(model: Any, run: Run, file: Path) -> None:
    """Plain torch and the run agree on rows as a hospital has them."""
    patients = pandas.read_parquet(file).drop(columns="died")
    inputs = Federation.from_files(file, client="hospital", label="died", attributes=["sex"], test=0.25).test.x
    with torch.inference_mode():
        plain = model(torch.from_numpy(inputs)).argmax(dim=1).numpy()
    assert (run.estimator().learner.predict(run.model, inputs) == plain).all()
    assert set(run.estimator().predict(patients)) == {"no", "yes"}


@pytest.mark.parametrize(("name", "attacks"), [("", len(KINDS) + 10), ("-mnist", 8), ("-femnist", 2 * 8)])
def test_the_examples_of_attacks_run_each_recipe_under_each_attack(name: str, attacks: int) -> None:
    plan = load_plan(EXAMPLES / f"attack{name}.toml")
    rows = [row.name for row in plan.rows]
    for recipe in ("fedval, top half", "robust"):
        assert recipe in rows
        assert sum(row.startswith(f"{recipe} (") for row in rows) == attacks


def test_the_example_of_a_tuned_study_tunes_every_row() -> None:
    plan = load_plan(EXAMPLES / "study-tuned.toml")
    assert plan.tuned == list(plan.rows)
    assert not {*plan.seeds} & {*plan.tune.seeds}


@pytest.mark.parametrize(("name", "clients", "kinds"), [("heart", 4, set()), ("medpar", 54, {"rows"})])
def test_the_examples_of_real_hospitals_run(
    name: str, clients: int, kinds: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable: None
) -> None:
    """Their configurations settle every suspicion about a column; small hospitals stay."""
    root = os.environ.get("FEDMERIT_DATA")
    if not root or not all((Path(root) / data).is_dir() for data in ("heart-disease", "medpar")):
        pytest.skip("FEDMERIT_DATA has no heart-disease and medpar")
    import real_hospitals

    monkeypatch.chdir(tmp_path)
    real_hospitals.main("hospitals")
    config = load_config(EXAMPLES / f"{name}.toml", ["run.rounds=2", "run.workers=1"])
    run = run_config(config, tmp_path / "run")
    assert len(run.ledger.names()) == clients
    assert run.estimator().classes_.tolist() == [0, 1]
    assert {one.kind for one in DataReport.read(tmp_path / "run" / "data.json").suspicions} == kinds
