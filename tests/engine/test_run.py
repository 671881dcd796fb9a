"""Whole runs: same seed, same bits; what is evaluated when; models on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import small_task

from fedmerit import CB, DS, Run, Task, UserError, fedavg, federate, load_task, prioritized, run_config
from fedmerit.config.schema import Config, make_config
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


def test_the_number_of_workers_does_not_change_the_bits(tmp_path: Path):
    for workers in (1, 2):
        run_config(digits_config(rounds=2, workers=workers), tmp_path / str(workers))
    one, two = (Run.load(tmp_path / name) for name in ("1", "2"))
    assert (one.model == two.model).all()
    assert one.explain(2) == two.explain(2)
    np.testing.assert_equal(one.local_accuracy, two.local_accuracy)


def test_evaluation_equals_a_loop_over_clients(digits: Task):
    run = federate(digits, prioritized(DS, CB), rounds=2, fraction=0.5)
    test = digits.federation.test
    right = [digits.learner.predict(run.model, test.x[test.rows(i)]) == test.y[test.rows(i)] for i in range(6)]
    assert run.local_accuracy.shape == (2, 6)
    assert run.local_accuracy[-1] == pytest.approx([client.mean() for client in right])
    assert run.accuracy == pytest.approx(np.concatenate(right).mean())


def test_digits_are_learned(digits: Task):
    run = federate(digits, fedavg(), rounds=10, fraction=1.0, evaluate_every=10)
    assert run.accuracy > 0.7


def test_a_run_is_found_again_in_its_folder(tmp_path: Path):
    records = []
    done = run_config(digits_config(), tmp_path / "run", records.append)
    again = Run.load(str(tmp_path / "run"))
    assert (again.model == done.model).all()
    assert again.explain(3) == done.explain(3)
    assert again.accuracy == done.accuracy == records[-1].evaluation.accuracy
    assert [record.index for record in records] == [1, 2, 3]
    assert "3 rounds, 6 clients" in repr(again)


def test_the_best_model_is_kept_beside_the_last(tmp_path: Path):
    run = run_config(digits_config(rounds=4), tmp_path / "run")
    found = read_model(tmp_path / "run" / "best.safetensors")
    assert found is not None
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


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="no run in"):
        Run.load(tmp_path)


def test_an_unfinished_run_is_told_apart(tmp_path: Path):
    run_config(digits_config(rounds=1), tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="unfinished"):
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


def test_explain_gives_weights_that_sum_to_1():
    run = federate(small_task(), prioritized(DS), rounds=2, fraction=0.5)
    for number in (1, 2):
        earned = run.explain(number)
        assert sum(client.weight for client in earned) == pytest.approx(1)
        assert all(client.criteria["DS"] == client.facts["samples"] for client in earned)


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 0}, {"fraction": 0.0}, {"fraction": 1.5}, {"seed": -1}, {"evaluate_every": 0}, {"workers": 0}],
)
def test_settings_that_cannot_be_are_a_users_mistake(settings: dict[str, float]):
    with pytest.raises(UserError, match=f"run.{next(iter(settings))}"):
        federate(small_task(), fedavg(), **settings)
