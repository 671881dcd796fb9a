"""Enrolment and admission: a node is who its key says, impostors are refused, a mute one costs one deadline."""

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from helpers import SoftmaxLearner, small_task
from test_faults import BAD, Meddling, fleet_on, honest, next_round, played, task

from fedmerit import DS, LD, fedavg, prioritized
from fedmerit.core.seeds import derive
from fedmerit.core.state import Record, State
from fedmerit.errors import ConfigError
from fedmerit.flower import GridFleet
from fedmerit.flower.admission import EnrolledClient, Enrolment, fingerprint
from fedmerit.flower.app import SEED, with_server_seed
from fedmerit.flower.keys import make_node_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("keys")
    return [make_node_key(folder, f"node{place}").with_suffix(".pub").read_bytes() for place in range(5)]


class Keyed(Meddling):
    """A grid that knows the nodes' keys, as a SuperLink with `--enable-supernode-auth` does."""

    def __init__(self, keys: dict[int, bytes]) -> None:
        super().__init__(task(), honest)
        self.keys = keys

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=node, public_key=self.keys.get(node, b"")) for node in self.get_node_ids()]

    def copy_node(self, place: int, to: int) -> None:
        """A node more that says what the node of this client says."""
        old = self._contexts[1000 + place]
        self._contexts[to] = replace(old, node_id=to, state=RecordDict())


def enrolled(keys: list[bytes], **more: Any) -> Enrolment:
    known = Enrolment()
    for place, key in enumerate(keys[:4]):
        known = known.with_client(EnrolledClient(client=place, key=fingerprint(key), **more))
    return known


def fleet_with(keys: list[bytes], enrolment: Enrolment, stranger: bytes | None = None, meet: int = 4) -> GridFleet:
    """A fleet of four nodes with these keys, and a stranger that says what the node of client `BAD` says."""
    grid = Keyed({1000 + place: key for place, key in enumerate(keys[:4])} | ({900: stranger} if stranger else {}))
    if stranger is not None:
        grid.copy_node(BAD, to=900)  # asked before the real one
    fleet = GridFleet(grid, task().server(), timeout=0.3, enrolment=enrolment)
    fleet.meet(meet)
    return fleet


def one_round(fleet: GridFleet, seed: int = 1) -> Record:
    return next_round(fleet, prioritized(DS, LD), seed=seed)[1]


def test_an_impostor_is_refused_and_told_and_changes_nothing(keys: list[bytes], caplog: pytest.LogCaptureFixture):
    plain = one_round(GridFleet(Keyed({}), task().server(), timeout=0.3))
    fleet = fleet_with(keys, enrolled(keys), stranger=keys[4])
    record = one_round(fleet)
    assert fleet.nodes == {place: 1000 + place for place in range(4)}
    assert fleet.admission.refused == {900: "its key is not enrolled, or was revoked"}
    assert caplog.text.count("node 900 is refused") == 1
    assert record.weights.weights.tolist() == plain.weights.weights.tolist()


def test_an_enrolled_node_cannot_be_another_client(keys: list[bytes]):
    fleet = fleet_with(keys, enrolled(keys), stranger=keys[0])
    assert fleet.nodes[BAD] == 1000 + BAD
    assert "its key is enrolled for client 0" in fleet.admission.refused[900]


def test_without_enrolment_a_second_claim_is_refused_as_long_as_the_first_answers():
    grid = Keyed({})
    fleet = fleet_on(grid)
    grid.copy_node(BAD, to=900)
    one_round(fleet)
    assert fleet.nodes[BAD] == 1000 + BAD
    assert "which is node 1002" in fleet.admission.refused[900]
    del grid._contexts[1000 + BAD]
    assert one_round(fleet).ids == (0, 1, 2, 3)
    assert fleet.nodes[BAD] == 900


def test_a_revoked_key_does_not_get_in_again(keys: list[bytes]):
    fleet = fleet_with(keys, enrolled(keys).without(BAD), meet=3)
    assert set(fleet.nodes) == {0, 1, 3}
    with pytest.raises(ConfigError, match="was revoked"):
        enrolled(keys).without(BAD).with_client(EnrolledClient(client=7, key=fingerprint(keys[BAD])))


def test_claims_beyond_what_is_enrolled_are_left_out(keys: list[bytes]):
    record = one_round(fleet_with(keys, enrolled(keys, samples=15)))
    assert record.ids == (0, 1, 3)
    assert record.dropped == {2: "fact samples must be in 0..15 (got 20.0)"}


def test_seeds_that_go_out_are_derived_and_not_the_runs():
    seen: list[dict[str, Any]] = []

    class Listening(Meddling):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            sent = list(messages)
            seen.extend(dict(one.content["config"]) for one in sent if "config" in one.content)
            return super().push_messages(sent)

    one_round(fleet_on(Listening(task(), honest)), seed=123456789)
    assert {one["seed"] for one in seen if "seed" in one} == {
        derive(123456789, "train", 1, client) for client in range(4)
    }
    assert all(value != 123456789 for one in seen for value in one.values())


def test_the_server_may_draw_from_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch):
    from fedmerit import load_config

    config = load_config(None, ["run.seed=1"])
    assert with_server_seed(config) is config
    monkeypatch.setenv(SEED, "77")
    assert with_server_seed(config).run.seed == 77
    monkeypatch.setenv(SEED, "secret")
    with pytest.raises(ConfigError, match="whole number") as refused:
        with_server_seed(config)
    assert "secret" not in str(refused.value)


def test_a_mute_node_of_8_costs_one_deadline_in_the_whole_run():
    made = small_task((5, 12, 20, 8, 6, 7, 8, 9), (6,) * 8, SoftmaxLearner())

    class Mute(Meddling):
        """From some time on one node answers nothing, greetings included."""

        silent = False

        def deliver(self, message: Message) -> Message | None:
            reply = super().deliver(message)
            return None if self.silent and message.metadata.dst_node_id == 1000 + BAD else reply

    grid = Mute(made, honest)
    fleet = GridFleet(grid, made.server(), timeout=0.5)
    fleet.meet(8)
    grid.silent = True
    state = State(fleet.server.first_model(0))
    for _ in range(5):
        state, record = next_round(fleet, fedavg(), state)
        assert record.ids == (0, 1, 3, 4, 5, 6, 7)
    assert sum(fleet.admission.strikes.values()) == 1
    assert record.dropped == {BAD: "its node is not connected"}
    grid.silent = False
    fleet.admission.greeted.clear()  # what was lost on the way is not answered any more
    state, record = next_round(fleet, fedavg(), state)
    assert BAD in record.ids


def test_a_lost_answer_is_no_reason_to_stay_away():
    record = played(lambda reply: [], fedavg())
    assert "no answer within" in record.dropped[BAD]
    assert np.asarray(record.evaluation.sizes).tolist() == [6, 6, 6, 6]
