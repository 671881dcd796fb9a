"""Clients alone, and personal models that are finished alone: what is trained, and what a gain is measured against."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmerit import Run, Task, cgsv, fedavg, federate, load_task, standalone
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.models.personal import PersonalModels
from fedmerit.errors import ConfigError, UserError
from fedmerit.study.fairness import Gains, gains_of

CLIENTS, ROUNDS = 5, 4


@pytest.fixture(scope="module")
def task() -> Task:
    """A fifth of the clients has nothing to give."""
    return load_task(
        "digits", clients=CLIENTS, partition="iid", kinds={"free_rider": 0.2}, server=200, train={"lr": 0.1}
    )


def played(task: Task, recipe: object, rounds: int = ROUNDS) -> Run:
    return federate(task, recipe, rounds=rounds, fraction=1.0, seed=1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def alone(task: Task) -> Run:
    return played(task, standalone())


def test_nobody_alone_is_sent_anything(alone: Run):
    assert alone.ledger.rewards() == []
    first, last = alone.local_accuracy[0], alone.local_accuracy[-1]
    assert last.mean() > first.mean()


def test_whole_rewards_are_fedavg_and_finishing_alone_is_not(task: Task):
    """Where everybody gets all of the mean and its own training is reset, all have FedAvg's model."""
    everything = replace(cgsv(), criteria=fedavg().criteria, models=PersonalModels(sigma=2.0, training="reset"))
    common = played(task, fedavg()).local_accuracy
    assert np.array_equal(played(task, everything).local_accuracy, common)
    finished = played(task, replace(everything, models=replace(everything.models, until=ROUNDS - 1))).local_accuracy
    assert np.array_equal(finished[:-1], common[:-1])
    assert not np.array_equal(finished[-1], common[-1])


def test_after_the_last_round_with_rewards_none_are_sent(task: Task):
    run = played(task, cgsv(until=2))
    assert {reward.round for reward in run.ledger.rewards()} == {1, 2}
    assert all(reward.accepted for reward in run.ledger.rewards())


def test_rewards_of_cgsv_follow_the_cosine(task: Task):
    run = played(task, cgsv())
    entries = {reward.client: reward.entries for reward in run.ledger.rewards(ROUNDS)}
    weights = {one.id: one.weight for one in run.explain(ROUNDS)}
    assert sorted(entries, key=lambda client: entries[client]) == sorted(weights, key=lambda client: weights[client])
    rider = next(place for place, name in enumerate(run.ledger.names()) if "free_rider" in name)
    assert entries[rider] == min(entries.values()) < max(entries.values())


def test_gains_of_a_run(task: Task, alone: Run):
    run = played(task, replace(fedavg(), stages=(Contribution("leave-one-out"),)))
    rider = next(place for place, name in enumerate(run.ledger.names()) if "free_rider" in name)
    found = gains_of(run.ledger, alone.ledger, riders=[rider])
    assert found.by == "leave-one-out"
    assert found.gain.tolist() == (run.local_accuracy[-1] - alone.local_accuracy[-1]).tolist()
    assert found.measures["of_riders"] == found.gain[rider] > found.measures["mean"], (
        "FedAvg pays whoever brings nothing the most"
    )
    assert gains_of(alone.ledger, alone.ledger).measures["mean"] == 0
    assert gains_of(alone.ledger, alone.ledger).by == "rows"


def test_gains_on_another_budget_or_of_others_are_refused(task: Task, alone: Run):
    with pytest.raises(UserError, match="same number of rounds: the run was last tested after round 1"):
        gains_of(played(task, fedavg(), rounds=1).ledger, alone.ledger)
    others = load_task("digits", clients=4, partition="iid")
    with pytest.raises(UserError, match="same clients"):
        gains_of(played(others, fedavg(), rounds=1).ledger, alone.ledger)


def test_measures_by_hand():
    found = Gains(
        "rows", np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.6, 0.7, np.nan]), np.array([0.6, 0.8, 0.6, 0.9])
    )
    assert found.measures["mean"] == pytest.approx(0.2 / 3)
    assert found.measures["spread"] == pytest.approx(np.std([0.1, 0.2, -0.1]))
    assert found.below == (2,)
    assert found.measures["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [0.1, 0.2, -0.1])[0, 1])
    assert found.measures["spearman"] == pytest.approx(-0.5)
    assert found.measures["pearson_standalone"] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(found.measures["of_riders"])


def test_contributions_to_a_shared_model_are_refused_for_clients_alone():
    with pytest.raises(ConfigError, match="needs one model that all clients train"):
        replace(standalone(), stages=(Contribution("shapley"),))
