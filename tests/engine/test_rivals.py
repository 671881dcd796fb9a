"""Baselines for personal models: alone, fine-tuning, attention and a local model [Ditto]."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import on_flower
from helpers import small_task

from fedmerit import (
    PersonalModels,
    Recipe,
    Run,
    Task,
    TorchLearner,
    cosine_rewards,
    ditto,
    fedavg,
    federate,
    finetuned,
    load_task,
    standalone,
)
from fedmerit.core.types import Download, Samples, Training
from fedmerit.errors import ConfigError

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


def test_a_local_model_leaves_the_shared_model_as_it_is(task: Task):
    common, local = played(task, fedavg()), played(task, ditto(0.1))
    assert common.model.tobytes() == local.model.tobytes()
    assert local.accuracy > common.accuracy


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


@pytest.fixture(scope="module")
def riders() -> Task:
    """A fifth of the clients has nothing to give."""
    return load_task("digits", clients=5, partition="iid", kinds={"free_rider": 0.2}, server=200, train={"lr": 0.1})


@pytest.fixture(scope="module")
def alone(riders: Task) -> Run:
    return played(riders, standalone())


def test_nobody_alone_is_sent_anything(alone: Run):
    assert alone.ledger.rewards() == []
    first, last = alone.local_accuracy[0], alone.local_accuracy[-1]
    assert last.mean() > first.mean()


def test_whole_rewards_are_fedavg_and_finishing_alone_is_not(riders: Task):
    """Where everybody gets all of the mean and its own training is reset, all have FedAvg's model."""
    everything = replace(
        cosine_rewards(), criteria=fedavg().criteria, models=PersonalModels(sigma=2.0, training="reset")
    )
    common = played(riders, fedavg()).local_accuracy
    assert np.array_equal(played(riders, everything).local_accuracy, common)
    finished = played(riders, replace(everything, models=replace(everything.models, until=ROUNDS - 1))).local_accuracy
    assert np.array_equal(finished[:-1], common[:-1])
    assert not np.array_equal(finished[-1], common[-1])


def test_after_the_last_round_with_rewards_none_are_sent(riders: Task):
    run = played(riders, cosine_rewards(until=2))
    assert {reward.round for reward in run.ledger.rewards()} == {1, 2}
    assert all(reward.accepted for reward in run.ledger.rewards())
