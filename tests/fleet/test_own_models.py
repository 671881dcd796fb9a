"""Clients that keep models of their own: through rounds, dying workers, spilling to disk, saving and loading."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import toy

from fedmerit import Parcel, Replies
from fedmerit.checkpoint import write_checkpoint
from fedmerit.fleet.local import LocalFleet

SEED = 9
CLIENTS = (0, 2, 5)
OWN = Parcel(None, keep=True)


def first(fleet: LocalFleet) -> dict[int, Parcel]:
    """Everybody starts from a model of the server's and keeps what it trains."""
    return {client: Parcel(fleet.start(client), keep=True) for client in CLIENTS}


def train(fleet: LocalFleet, index: int, parcels: dict[int, Parcel]) -> Replies:
    return fleet.train(index, parcels, ("samples",), SEED)


def rows(replies: Replies) -> list[bytes]:
    one_each = np.eye(len(replies.ids))
    return [row.tobytes() for row in replies.updates.combine(one_each)]


def three_rounds(**settings: object) -> list[list[bytes]]:
    with LocalFleet(toy.task(**settings.pop("behaviour", {})), **settings) as fleet:  # type: ignore[arg-type]
        return [
            rows(train(fleet, 1, first(fleet))),
            *(rows(train(fleet, i, dict.fromkeys(CLIENTS, OWN))) for i in (2, 3)),
        ]


def test_the_next_round_goes_on_from_the_own_model():
    with LocalFleet(toy.task()) as fleet:
        begun = first(fleet)
        updates = train(fleet, 1, begun).updates.combine(np.eye(3))
        second = rows(train(fleet, 2, dict.fromkeys(CLIENTS, OWN)))
    with LocalFleet(toy.task()) as fleet:
        sent = {client: Parcel(begun[client].model + update) for client, update in zip(CLIENTS, updates, strict=True)}
        assert rows(train(fleet, 2, sent)) == second


def test_without_keep_the_own_model_stays():
    with LocalFleet(toy.task()) as fleet:
        train(fleet, 1, first(fleet))
        once = rows(train(fleet, 2, dict.fromkeys(CLIENTS, Parcel(None))))
        train(fleet, 2, {client: Parcel(fleet.start(77)) for client in CLIENTS})
        assert rows(train(fleet, 2, dict.fromkeys(CLIENTS, Parcel(None)))) == once


def test_bits_do_not_depend_on_workers_disk_or_deaths(tmp_path: Path):
    alone = three_rounds()
    assert three_rounds(workers=2) == alone
    assert three_rounds(workers=2, memory=1, spill_to=tmp_path) == alone
    assert three_rounds(memory=4 * 3 * toy.FEATURES, spill_to=tmp_path) == alone  # updates in memory, own models not
    assert three_rounds(workers=2, behaviour={"die_once": tmp_path / "died"}) == alone
    assert [path.name for path in tmp_path.iterdir()] == ["died"]


def test_more_clients_than_before_find_the_kept_models_unharmed():
    with LocalFleet(toy.task(), 2) as fleet:
        train(fleet, 1, first(fleet))
        others = {client: Parcel(fleet.start(client), keep=True) for client in (1, 3, 4, 6)}
        train(fleet, 2, others)
        replies = train(fleet, 3, dict.fromkeys(range(7), OWN))
        assert replies.ids == tuple(range(7))
        later = rows(replies)
    with LocalFleet(toy.task()) as fleet:
        train(fleet, 1, first(fleet))
        assert rows(train(fleet, 3, dict.fromkeys(CLIENTS, OWN))) == [later[client] for client in CLIENTS]


def test_who_has_no_own_model_is_left_out_with_the_reason():
    with LocalFleet(toy.task()) as fleet:
        nobody = train(fleet, 1, {4: OWN})
        assert (nobody.ids, nobody.failed) == ((), {4: "it has no model of its own to go on from"})
        train(fleet, 1, first(fleet))
        some = train(fleet, 2, {2: OWN, 4: OWN})
        assert (some.ids, list(some.failed)) == ((2,), [4])


def test_a_client_whose_training_fails_keeps_what_it_had():
    class Moody(toy.Toy):
        bad = False

        def train(self, model, samples, seed):  # type: ignore[no-untyped-def]
            trained = super().train(model, samples, seed)
            return trained * np.float32(np.nan) if Moody.bad and samples.y[0] == 2 else trained

    from fedmerit import Task

    with LocalFleet(Task(toy.federation(), Moody())) as fleet:
        train(fleet, 1, first(fleet))
        expected = rows(train(fleet, 2, {2: Parcel(None)}))
        Moody.bad = True
        train(fleet, 2, {2: OWN})
        Moody.bad = False
        assert rows(train(fleet, 2, {2: Parcel(None)})) == expected


def saved_rounds(folder: Path) -> list[list[bytes]]:
    """Four rounds, each saved as a run does it; client 5 is absent after the first."""
    done = []
    with LocalFleet(toy.task()) as fleet:
        for index in range(1, 5):
            parcels = first(fleet) if index == 1 else {0: OWN, 2: OWN}
            done.append(rows(train(fleet, index, parcels)))
            fleet.save(folder, index)
            write_checkpoint(folder, fleet.start(0), index)
    return done


def test_saved_models_are_loaded_as_they_were_after_a_round(tmp_path: Path):
    done = saved_rounds(tmp_path)
    with LocalFleet(toy.task()) as fleet:
        assert fleet.load(tmp_path, 3)
        assert rows(train(fleet, 4, {0: OWN, 2: OWN})) == done[3]
        assert train(fleet, 4, {5: OWN}).ids == (5,)


def test_files_that_no_checkpoint_needs_are_removed(tmp_path: Path):
    saved_rounds(tmp_path)
    kept = {path.parent.name: [] for path in tmp_path.glob("checkpoints/own/*/*")}
    for path in sorted(tmp_path.glob("checkpoints/own/*/*")):
        kept[path.parent.name].append(int(path.stem))
    assert kept == {"0": [2, 3, 4], "2": [2, 3, 4], "5": [1]}


@pytest.mark.parametrize("harm", ["cut", "altered"])
def test_a_damaged_model_is_noticed(tmp_path: Path, harm: str):
    saved_rounds(tmp_path)
    path = tmp_path / "checkpoints" / "own" / "2" / "00000004.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-8] if harm == "cut" else content[:-8] + bytes(8))
    with LocalFleet(toy.task()) as fleet:
        assert not fleet.load(tmp_path, 4)
        assert fleet.load(tmp_path, 3)


def test_after_a_damaged_round_nothing_of_it_is_left(tmp_path: Path):
    """Client 3 kept its first model in the round whose file of client 2 is damaged."""
    saved_rounds(tmp_path)
    with LocalFleet(toy.task()) as fleet:
        train(fleet, 5, {3: Parcel(fleet.start(3), keep=True), 2: Parcel(fleet.start(2), keep=True)})
        fleet.save(tmp_path, 5)
    (tmp_path / "checkpoints" / "own" / "2" / "00000005.safetensors").write_bytes(b"")
    with LocalFleet(toy.task()) as fleet:
        assert not fleet.load(tmp_path, 5)
        assert train(fleet, 5, {0: OWN, 3: OWN}).ids == ()
        assert fleet.load(tmp_path, 4)
        assert train(fleet, 5, {0: OWN, 3: OWN}).ids == (0,)


def test_a_run_without_own_models_has_nothing_to_load(tmp_path: Path):
    with LocalFleet(toy.task()) as fleet:
        fleet.save(tmp_path, 1)
        assert fleet.load(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []
