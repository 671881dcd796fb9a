"""Baselines for personal models: fine-tuning, attention, and a local model [Ditto]."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import on_flower
from helpers import small_task, stopped_and_resumed

from fedmerit import (
    Run,
    Task,
    ditto,
    fedamp,
    fedavg,
    federate,
    finetuned,
    load_task,
    robust,
    run_config,
    standalone,
)
from fedmerit.config.schema import make_config
from fedmerit.core.models.shared import LocalModel
from fedmerit.core.recipe import Recipe
from fedmerit.core.types import Download, Samples, Training
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet
from fedmerit.learn.sgd import TorchLearner

CLIENTS, ROUNDS = 4, 4


@pytest.fixture(scope="module")
def task() -> Task:
    """Clients with few labels each."""
    train = {"lr": 0.3, "epochs": 1, "batch": 20}
    return load_task("digits", clients=CLIENTS, partition="dirichlet", alpha=0.1, test="matched", train=train)


def played(task: Task, recipe: Recipe, rounds: int = ROUNDS, out: Path | None = None) -> Run:
    return federate(task, recipe, rounds=rounds, fraction=1.0, seed=1, out=out)


def test_finetuned_is_fedavg_and_then_alone(task: Task):
    common, run = played(task, fedavg()), played(task, finetuned(until=ROUNDS - 1))
    assert np.array_equal(run.local_accuracy[:-1], common.local_accuracy[:-1])
    assert run.local_accuracy[-1].mean() > common.local_accuracy[-1].mean()


def test_fedamp_without_a_pull_trains_alone_and_a_strong_one_keeps_clients_together(task: Task):
    alone, free, tied = (played(task, one) for one in (standalone(), fedamp(lam=0.0), fedamp(sigma=50.0, lam=3.0)))
    assert abs(free.accuracy - alone.accuracy) < 0.05
    assert tied.accuracy < free.accuracy  # the clients of this task differ


def test_fedamp_resumes_with_every_clients_model(tmp_path: Path):
    settings = {"task": {"data": "digits", "clients": 4}, "run": {"rounds": 4, "fraction": 0.5, "workers": 1}}
    config = make_config({**settings, "recipe": {"name": "fedamp", "models": {"sigma": 2.0}}})
    whole, stopped = run_config(config, tmp_path / "whole"), stopped_and_resumed(config, tmp_path / "stopped")
    assert np.array_equal(whole.local_accuracy, stopped.local_accuracy)


def test_a_local_model_leaves_the_shared_model_as_it_is(task: Task):
    common, local = played(task, fedavg()), played(task, ditto(0.1))
    assert common.model.tobytes() == local.model.tobytes()
    assert local.accuracy > common.accuracy


def test_without_a_pull_it_is_as_if_alone_and_with_a_strong_one_as_the_shared(task: Task):
    """Steps of 0.3 with a pull of 3 forget nine tenths of what is their own."""
    alone, common = played(task, standalone()), played(task, fedavg())
    free, tied = played(task, ditto(0.0)), played(task, ditto(3.0))
    assert abs(free.accuracy - alone.accuracy) < abs(free.accuracy - common.accuracy)
    assert abs(tied.accuracy - common.accuracy) < abs(free.accuracy - common.accuracy)


def test_any_recipe_with_one_model_can_have_a_local_model(task: Task):
    run = played(task, replace(robust(), models=LocalModel(0.1)), rounds=2)
    assert len(run.ledger.rounds()) == 2


def test_several_workers_keep_the_same_models(task: Task):
    with LocalFleet(task) as here, LocalFleet(task, workers=2) as there:
        kept = []
        for fleet in (here, there):
            model = fleet.server.first_model(1)
            sent = {client: Download(model, training=Training(pull=0.1)) for client in range(CLIENTS)}
            for index in (1, 2):
                fleet.train(index, sent, (), 5)
            kept.append(fleet.evaluate_personal(model).correct.tolist())
    assert kept[0] == kept[1]


def test_a_pull_is_the_gradient_of_the_distance_to_the_shared_model(task: Task):
    """One whole batch: v - lr (grad l(v) + pull (v - w)), by what a step without a pull gives."""
    learner = task.learner
    assert isinstance(learner, TorchLearner)
    config = learner.config.model_copy(update={"batch": "full", "epochs": 1})
    learner = replace(learner, config=config)
    rows: Samples = task.federation.samples(0)
    own, shared = learner.start(1), learner.start(2)
    plain = learner.train(own.copy(), rows, 3)
    pulled = learner.train_pulled(own.copy(), shared, 0.5, rows, 3, None)
    assert pulled == pytest.approx(plain - config.lr * 0.5 * (own - shared), abs=1e-6)


def test_a_learner_that_cannot_be_pulled_is_refused():
    with pytest.raises(ConfigError, match="train_pulled"):
        federate(small_task(), ditto(), rounds=1)


def test_flower_refuses_local_models(task: Task):
    fleet = on_flower(task)
    with pytest.raises(ConfigError, match=r"recipes ditto and fedamp.* do not run on Flower"):
        fleet.train(1, {0: Download(fleet.server.first_model(1), training=Training(pull=0.1))}, (), 5)
