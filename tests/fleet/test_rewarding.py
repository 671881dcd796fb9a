"""Rewards on the local fleet: clients test and take them, or refuse what does not fit; workers do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toy

from fedmerit import Task
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.types import Download, Personal, SparseUpdate, Training
from fedmerit.fleet.local import LocalFleet

ALWAYS = Acceptance(1e9)
CLIENTS = (0, 2, 5)


def task(validation: bool = True) -> Task:
    made = toy.task()
    federation = made.federation
    return Task(replace(federation, validation=federation.test) if validation else federation, made.learner)


def begun(fleet: LocalFleet) -> LocalFleet:
    """Clients 0, 2 and 5 have models of their own."""
    train_personal(fleet, CLIENTS, "reset")
    return fleet


def train_personal(fleet: LocalFleet, clients: Sequence[int], personal: Personal) -> None:
    first = fleet.server.first_model
    sent = {client: Download(first(client), training=Training(personal)) for client in clients}
    fleet.train(1, sent, ("samples",), 9)


def right(fleet: LocalFleet, model: np.ndarray) -> np.ndarray:
    return fleet.evaluate([model])[0].correct


def test_a_taken_reward_is_added_and_the_next_evaluation_sees_it():
    with LocalFleet(task()) as fleet:
        begun(fleet)
        change = np.random.default_rng(1).normal(size=toy.FEATURES).astype(np.float32)
        places = np.arange(0, toy.FEATURES, 2, dtype=np.uint32)
        parts = {0: SparseUpdate(change), 2: SparseUpdate(change[places], places)}
        verdicts = fleet.send_rewards(1, parts, ALWAYS)
        assert [verdicts[client].accepted for client in (0, 2)] == [True, True]
        half = fleet.server.first_model(2)
        half[places] += change[places]
        own = {0: fleet.server.first_model(0) + change, 2: half, 5: fleet.server.first_model(5)}
        found = fleet.evaluate_personal(fleet.server.first_model(77))
        for client in range(toy.CLIENTS):
            model = own.get(client, fleet.server.first_model(77))
            assert found.correct[client] == right(fleet, model)[client], client
        assert (found.sizes == toy.ROWS).all()


def test_before_and_after_are_the_clients_own_accuracies():
    with LocalFleet(task()) as fleet:
        begun(fleet)
        flipped = SparseUpdate(-2 * fleet.server.first_model(0))
        verdict = fleet.send_rewards(1, {0: flipped}, Acceptance(0.0))[0]
        before, after = (
            right(fleet, model)[0] / toy.ROWS for model in (fleet.server.first_model(0), -fleet.server.first_model(0))
        )
        assert (verdict.before, verdict.after) == (before, after)
        assert verdict.accepted == (after > before or before == 0)


def test_what_is_not_taken_changes_nothing():
    with LocalFleet(task()) as fleet:
        begun(fleet)
        before = fleet.evaluate_personal(fleet.server.first_model(77)).correct.tolist()
        worst = None
        for seed in range(50):
            change = SparseUpdate(np.random.default_rng(seed).normal(scale=5, size=toy.FEATURES).astype(np.float32))
            said = fleet.send_rewards(1, {5: change}, Acceptance(0.0))[5]
            if not said.accepted:
                worst = said
                break
            begun(fleet)  # has no effect: the client has a model of its own
            before = fleet.evaluate_personal(fleet.server.first_model(77)).correct.tolist()
        assert worst is not None
        assert worst.after <= worst.before
        assert fleet.evaluate_personal(fleet.server.first_model(77)).correct.tolist() == before


HOSTILE: dict[str, Any] = {
    "out of range": SparseUpdate(np.ones(2, np.float32), np.array([0, toy.FEATURES], np.uint32)),
    "not sorted": SparseUpdate(np.ones(2, np.float32), np.array([3, 1], np.uint32)),
    "not finite": SparseUpdate(np.array([np.nan], np.float32), np.array([3], np.uint32)),
    "too short": SparseUpdate(np.ones(3, np.float32)),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("workers", [1, 2])
def test_hostile_parts_are_refused_and_others_not_harmed(kind: str, workers: int):
    with LocalFleet(task(), workers) as fleet:
        begun(fleet)
        good = SparseUpdate(np.zeros(toy.FEATURES, np.float32))
        verdicts = fleet.send_rewards(1, {0: HOSTILE[kind], 2: good, 7: good}, ALWAYS)
        assert (verdicts[0].accepted, verdicts[2].accepted, verdicts[7].accepted) == (False, True, False)
        assert verdicts[0].reason
        assert "no personal model" in verdicts[7].reason
        assert (
            fleet.evaluate_personal(fleet.server.first_model(0)).correct[0]
            == right(fleet, fleet.server.first_model(0))[0]
        ).all()


def test_who_cannot_test_takes_it():
    with LocalFleet(task(validation=False)) as fleet:
        begun(fleet)
        said = fleet.send_rewards(1, {0: SparseUpdate(np.ones(toy.FEATURES, np.float32))}, Acceptance(0.0))[0]
        assert said.accepted
        assert np.isnan(said.before)


def test_workers_do_not_matter():
    def outcome(workers: int) -> tuple[list[int], list[Any]]:
        with LocalFleet(task(), workers) as fleet:
            clients = tuple(range(toy.CLIENTS))
            train_personal(fleet, clients, "keep")
            random = np.random.default_rng(0)
            parts = {c: SparseUpdate(random.normal(size=toy.FEATURES).astype(np.float32)) for c in clients}
            said = fleet.send_rewards(1, parts, Acceptance(0.1))
            assert len({said[c].accepted for c in clients}) == 2, "some take it, some do not"
            return fleet.evaluate_personal(fleet.server.first_model(0)).correct.tolist(), [said[c] for c in clients]

    assert outcome(1) == outcome(3)


def test_a_learner_without_layers_has_one():
    with LocalFleet(task()) as fleet:
        assert tuple(fleet.server.layers()) == ((toy.FEATURES,),)
