"""Whole runs by `run_config` and `federate`: same seed, same bits; what is evaluated when; folders and warnings."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers import small_task

from fedmerit import (
    Run,
    Task,
    UserError,
    adaptive,
    device_aware,
    fedavg,
    federate,
    load_task,
    prioritized,
    resume,
    run_config,
)
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.collect import default_fraction
from fedmerit.errors import FolderError, NoteWarning
from fedmerit.report.html import write_report
from fedmerit.store.model_files import read_model


def digits_config(**run: int) -> Config:
    return make_config(
        {
            "task": {"partition": "dirichlet", "alpha": 0.3, "clients": 6},
            "train": {"lr": 0.5, "epochs": 2, "batch": 50},
            "recipe": {"name": "prioritized", "criteria": "LD,DS,MW", "normalise": "max"},
            "run": {"rounds": 3, "fraction": 0.5, "workers": 1} | run,
        }
    )


@pytest.fixture(scope="module")
def digits() -> Task:
    return load_task("digits", partition="dirichlet", clients=6, train={"lr": 0.5, "epochs": 2})


def test_same_seed_same_bits(tmp_path: Path):
    for name, seed in (("one", 4), ("two", 4), ("other", 5)):
        run_config(digits_config(seed=seed), tmp_path / name)
    one, two, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


def test_the_best_model_is_kept_beside_the_last(tmp_path: Path):
    run = run_config(digits_config(rounds=4), tmp_path / "run")
    found = read_model(tmp_path / "run" / "best.safetensors")
    best = found[0]
    accuracies = [row["accuracy"] for row in run.ledger.rounds()]
    task = load_task("digits", partition="dirichlet", alpha=0.3, clients=6)
    test = task.federation.test
    assert (task.learner.predict(best, test.x) == test.y).mean() == pytest.approx(max(accuracies))


def test_a_notebook_shows_the_run_and_its_reasons(digits: Task):
    run = federate(digits, fedavg(), rounds=1, fraction=1.0)
    page = run._repr_html_()
    assert "&lt;Run: 1 rounds, 6 clients" in page
    assert page.count("<li>client") == 6


def test_a_folder_that_exists_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="exists"):
        run_config(digits_config(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_model_is_refused(tmp_path: Path):
    run_config(digits_config(rounds=1), tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no finished run"):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("every", "rounds", "evaluated"), [(1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (2, 4, [2, 4]), (9, 3, [3])]
)
def test_evaluation_every_few_rounds_and_after_the_last(every: int, rounds: int, evaluated: list[int]):
    run = federate(small_task(), fedavg(), rounds=rounds, evaluate_every=every)
    assert [row["round"] for row in run.ledger.rounds()] == list(range(1, rounds + 1))
    assert [row["round"] for row in run.ledger.rounds() if row["accuracy"] is not None] == evaluated
    assert len(run.local_accuracy) == len(evaluated)


def test_evaluating_less_often_does_not_change_the_model():
    often, seldom = (federate(small_task(), fedavg(), rounds=4, evaluate_every=every) for every in (1, 4))
    assert (often.model == seldom.model).all()


def test_clients_without_test_rows_are_no_devices():
    run = federate(small_task(tests=(6, 0, 6, 0)), fedavg(), rounds=2, fraction=1.0)
    assert np.isnan(run.local_accuracy[:, [1, 3]]).all()
    assert not np.isnan(run.local_accuracy[:, [0, 2]]).any()
    assert run.rounds_to_target(0.0, 1.0, or_equal=True) == 1
    assert 0 <= run.accuracy <= 1


def test_rounds_to_target_speaks_of_evaluated_rounds():
    run = federate(small_task(), fedavg(), rounds=4, fraction=1.0, evaluate_every=2)
    assert run.rounds_to_target(0.0, 0.1, or_equal=True) == 2
    assert run.rounds_to_target(1.0, 0.1) is None


def test_a_learner_without_torch_learns():
    few, many = (federate(small_task(), fedavg(), rounds=rounds, fraction=1.0) for rounds in (1, 30))
    assert many.accuracy > max(few.accuracy, 0.8)


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 0}, {"fraction": 0.0}, {"fraction": 1.5}, {"seed": -1}, {"evaluate_every": 0}, {"workers": 0}],
)
def test_settings_that_cannot_be_are_a_users_mistake(settings: dict[str, float]):
    with pytest.raises(UserError, match=f"run.{next(iter(settings))}"):
        federate(small_task(), fedavg(), **settings)


@pytest.mark.parametrize(("clients", "share"), [(1, 1.0), (8, 1.0), (10, 1.0), (20, 0.5), (100, 0.1), (5000, 0.1)])
def test_few_clients_all_take_part_and_of_many_a_tenth(clients: int, share: float) -> None:
    assert default_fraction(clients) == share


def test_all_of_eight_clients_take_part_unless_told_otherwise() -> None:
    task = small_task(sizes=[5] * 8, tests=[6] * 8)
    assert len(federate(task, fedavg(), rounds=1).explain(1)) == 8
    assert len(federate(task, fedavg(), rounds=1, fraction=0.25).explain(1)) == 2


def test_what_is_no_recipe_is_refused_before_anything_runs() -> None:
    task = small_task(sizes=[5] * 4, tests=[6] * 4)
    with pytest.raises(TypeError, match=r"must be a Recipe \(got Task\); swap"):
        federate(fedavg(), task)  # type: ignore[arg-type]
    for make in (prioritized, device_aware, adaptive):
        assert make("LD", "DS").normalise == "max"
        with pytest.raises(UserError, match=r"value of normalise 'maxx' \(did you mean 'max'\?\)"):
            make("LD", "DS", normalise="maxx")  # type: ignore[arg-type]


def test_a_run_into_a_folder_is_read_back_and_reported(tmp_path: Path) -> None:
    folders = [tmp_path / "ld-seed1", tmp_path / "ld-seed2"]
    runs = [
        federate(small_task(), prioritized("LD", "DS"), rounds=2, seed=seed, out=folder)
        for seed, folder in enumerate(folders, start=1)
    ]
    again = Run.load(folders[0])
    assert np.array_equal(again.model, runs[0].model)
    assert again.explain(2) == runs[0].explain(2)
    in_memory = federate(small_task(), prioritized("LD", "DS"), rounds=2, seed=1)
    assert np.array_equal(in_memory.model, again.model)
    write_report(folders, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    with pytest.raises(FolderError, match="exists"):
        federate(small_task(), fedavg(), rounds=1, out=str(folders[0]))


def test_progress_shows_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    federate(small_task(), fedavg(), rounds=2, progress=True)
    assert "round 2 of 2  accuracy" in capsys.readouterr().out
    federate(small_task(), fedavg(), rounds=2)
    assert capsys.readouterr().out == ""


def test_each_kind_of_note_warns_once_and_points_at_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        federate(small_task(sizes=(9, 9, 9, 9)), fedavg(), rounds=3)
    notes = [warning for warning in caught if warning.category is NoteWarning]
    assert [str(note.message) for note in notes] == [
        "round 1: DS is the same for all clients of the round, so it has no effect"
    ]
    assert notes[0].filename == __file__


def test_a_run_of_a_task_made_in_python_is_not_resumed(tmp_path: Path) -> None:
    federate(small_task(), fedavg(), rounds=1, out=tmp_path / "run")
    with pytest.raises(FolderError, match="made in Python"):
        resume(tmp_path / "run")
