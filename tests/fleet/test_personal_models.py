"""Clients that keep their own models: through rounds, rewards, dying workers, spilling to disk, saving and loading."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from fedmerit import Task
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.state import History, State
from fedmerit.core.types import Download, Personal, Replies, SparseUpdate, Training
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.model_files import write_checkpoint

SEED = 9
CLIENTS = (0, 2, 5)


def downloads(
    fleet: LocalFleet, clients: tuple[int, ...] = CLIENTS, personal: Personal = "keep"
) -> dict[int, Download]:
    """Everybody continues from its own model; who has none starts from one of the server's."""
    return {client: Download(fleet.server.first_model(client), training=Training(personal)) for client in clients}


def train(fleet: LocalFleet, index: int, sent: dict[int, Download]) -> Replies:
    return fleet.train(index, sent, ("samples",), SEED)


def rows(replies: Replies) -> list[bytes]:
    one_each = np.eye(len(replies.ids))
    return [row.tobytes() for row in replies.updates.combine(one_each)]


def three_rounds(**settings: object) -> list[list[bytes]]:
    with LocalFleet(toy.task(**settings.pop("behaviour", {})), **settings) as fleet:  # type: ignore[arg-type]
        return [rows(train(fleet, index, downloads(fleet))) for index in (1, 2, 3)]


def test_the_next_round_goes_on_from_the_own_model():
    with LocalFleet(toy.task()) as fleet:
        begun = downloads(fleet)
        updates = train(fleet, 1, begun).updates.combine(np.eye(3))
        second = rows(train(fleet, 2, begun))
    with LocalFleet(toy.task()) as fleet:
        sent = {client: Download(begun[client].model + update) for client, update in zip(CLIENTS, updates, strict=True)}
        assert rows(train(fleet, 2, sent)) == second


def test_a_model_travels_only_to_clients_that_have_none():
    with LocalFleet(toy.task()) as fleet:
        size = fleet.server.first_model(0).nbytes
        assert train(fleet, 1, downloads(fleet)).bytes_down == 3 * size
        assert train(fleet, 2, downloads(fleet)).bytes_down == 0
        assert train(fleet, 3, downloads(fleet, (0, 1, 2, 3))).bytes_down == 2 * size


def test_reset_leaves_the_own_model_where_it_started():
    with LocalFleet(toy.task()) as fleet:
        train(fleet, 1, downloads(fleet))
        once = rows(train(fleet, 2, downloads(fleet, personal="reset")))
        train(fleet, 2, {client: Download(fleet.server.first_model(77)) for client in CLIENTS})
        assert rows(train(fleet, 2, downloads(fleet, personal="reset"))) == once
        train(fleet, 2, downloads(fleet))
        assert rows(train(fleet, 2, downloads(fleet, personal="reset"))) != once


def test_who_never_kept_training_starts_from_the_first_model_it_got():
    with LocalFleet(toy.task()) as fleet:
        once = rows(train(fleet, 1, downloads(fleet, personal="reset")))
        other = {client: Download(fleet.server.first_model(77), training=Training("reset")) for client in CLIENTS}
        assert rows(train(fleet, 1, other)) == once


def test_bits_do_not_depend_on_workers_disk_or_deaths(tmp_path: Path):
    alone = three_rounds()
    assert three_rounds(workers=2) == alone
    assert three_rounds(workers=2, memory=1, spill_to=tmp_path) == alone
    assert three_rounds(memory=4 * 3 * toy.FEATURES, spill_to=tmp_path) == alone  # updates in memory, own models not
    assert three_rounds(workers=2, behaviour={"die_once": tmp_path / "died"}) == alone
    assert [path.name for path in tmp_path.iterdir()] == ["died"]


def test_more_clients_than_before_find_the_kept_models_unharmed():
    with LocalFleet(toy.task(), 2) as fleet:
        train(fleet, 1, downloads(fleet))
        train(fleet, 2, downloads(fleet, (1, 3, 4, 6)))
        replies = train(fleet, 3, downloads(fleet, tuple(range(7))))
        assert replies.ids == tuple(range(7))
        later = rows(replies)
    with LocalFleet(toy.task()) as fleet:
        train(fleet, 1, downloads(fleet))
        assert rows(train(fleet, 3, downloads(fleet))) == [later[client] for client in CLIENTS]


def test_a_client_whose_training_fails_keeps_what_it_had():
    class Moody(toy.Toy):
        bad = False

        def train(self, model, samples, seed, epochs=None):  # type: ignore[no-untyped-def]
            trained = super().train(model, samples, seed)
            return trained * np.float32(np.nan) if Moody.bad and samples.y[0] == 2 else trained

    with LocalFleet(Task(toy.federation(), Moody())) as fleet:
        train(fleet, 1, downloads(fleet))
        expected = rows(train(fleet, 2, downloads(fleet, (2,), "reset")))
        Moody.bad = True
        train(fleet, 2, downloads(fleet, (2,)))
        Moody.bad = False
        assert rows(train(fleet, 2, downloads(fleet, (2,), "reset"))) == expected


def has_own(fleet: LocalFleet, *clients: int) -> list[int]:
    """Who of them has a model of its own: nothing needs to be sent to it."""
    size = fleet.server.first_model(0).nbytes
    return [client for client in clients if train(fleet, 9, downloads(fleet, (client,))).bytes_down < size]


def saved_rounds(folder: Path) -> list[list[bytes]]:
    """Four rounds, each saved as a run does it; client 5 is absent after the first."""
    done = []
    with LocalFleet(toy.task()) as fleet:
        for index in range(1, 5):
            done.append(rows(train(fleet, index, downloads(fleet, CLIENTS if index == 1 else (0, 2)))))
            fleet.save(folder, index)
            write_checkpoint(folder, State(fleet.server.first_model(0), History(index)))
    return done


def test_saved_models_are_loaded_as_they_were_after_a_round(tmp_path: Path):
    done = saved_rounds(tmp_path)
    with LocalFleet(toy.task()) as fleet:
        assert fleet.load(tmp_path, 3)
        assert rows(train(fleet, 4, downloads(fleet, (0, 2)))) == done[3]
        assert has_own(fleet, 1, 5) == [5]


def test_files_that_no_checkpoint_needs_are_removed(tmp_path: Path):
    saved_rounds(tmp_path)
    kept = {path.parent.name: [] for path in tmp_path.glob("checkpoints/personal/*/*")}
    for path in sorted(tmp_path.glob("checkpoints/personal/*/*")):
        kept[path.parent.name].append(int(path.stem))
    assert kept == {"0": [2, 3, 4], "2": [2, 3, 4], "5": [1]}


@pytest.mark.parametrize("harm", ["cut", "altered"])
def test_a_damaged_model_is_noticed(tmp_path: Path, harm: str):
    saved_rounds(tmp_path)
    path = tmp_path / "checkpoints" / "personal" / "2" / "00000004.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-8] if harm == "cut" else content[:-8] + bytes(8))
    with LocalFleet(toy.task()) as fleet:
        assert not fleet.load(tmp_path, 4)
        assert fleet.load(tmp_path, 3)


def test_after_a_damaged_round_nothing_of_it_is_left(tmp_path: Path):
    """Client 3 kept its first model in the round whose file of client 2 is damaged."""
    saved_rounds(tmp_path)
    with LocalFleet(toy.task()) as fleet:
        fleet.load(tmp_path, 4)
        train(fleet, 5, downloads(fleet, (2, 3)))
        fleet.save(tmp_path, 5)
    (tmp_path / "checkpoints" / "personal" / "2" / "00000005.safetensors").write_bytes(b"")
    with LocalFleet(toy.task()) as fleet:
        assert not fleet.load(tmp_path, 5)
        assert has_own(fleet, 0, 3) == []
    with LocalFleet(toy.task()) as fleet:
        assert fleet.load(tmp_path, 4)
        assert has_own(fleet, 0, 3) == [0]


def test_a_run_without_own_models_has_nothing_to_load(tmp_path: Path):
    with LocalFleet(toy.task()) as fleet:
        fleet.save(tmp_path, 1)
        assert fleet.load(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


ALWAYS = Acceptance(1e9)


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


def test_what_is_not_taken_changes_nothing():
    with LocalFleet(task()) as fleet:
        begun(fleet)
        for seed in range(50):
            before = fleet.evaluate_personal(fleet.server.first_model(77)).correct.tolist()
            change = SparseUpdate(np.random.default_rng(seed).normal(scale=5, size=toy.FEATURES).astype(np.float32))
            said = fleet.send_rewards(1, {5: change}, Acceptance(0.0))[5]
            if not said.accepted:
                break
        assert said.after <= said.before
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
