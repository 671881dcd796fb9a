"""Masked sums on Flower's messages: the sum and nothing else, drop-outs, hostile servers and clients."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from flwr.app import ConfigRecord, Context, Error, Message
from flwr.common.constant import ErrorCode
from helpers import ProbabilisticSoftmax, small_task

import fedmerit.flower.kept as kept
from fedmerit import Cap, Claims, Momentum, PrivateSum, Recipe, Server, Task, fedavg, prioritized, private, scale
from fedmerit.core.collect.collect import InTime, Poisson, Uniform
from fedmerit.core.collect.facts_first import FactsFirst
from fedmerit.core.collect.masking import Masking
from fedmerit.core.host import Fleet, Host
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.state import Record
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower import GridFleet, InProcessGrid, make_client_app
from fedmerit.flower.admission import EnrolledClient, Enrolment, read_fingerprint, write_enrolment
from fedmerit.flower.keys import make_node_key
from fedmerit.flower.masks import Secrets, degree, neighbours, threshold
from fedmerit.flower.messages import MASKED, SHARE, TRAIN, UNMASK, array
from fedmerit.tasks.registry import ClientHalf

SIZES = (6, 40, 9, 25, 30, 14)
CLIP = 20.0
RECIPES: dict[str, Callable[[], Recipe]] = {
    "fedavg": fedavg,
    "prioritized": lambda: prioritized("LD", "DS"),
    "momentum": lambda: Recipe(prioritized("DS").criteria, server=Server(optimizer=Momentum(0.5))),
    "capped claims": lambda: Recipe(fedavg().criteria, stages=(Claims(k=1.2),), limits=(Cap(1.5),)),
    "lexicographic": lambda: prioritized("Equal", "LC"),
    "private": lambda: private(
        prioritized("DS", normalise=scale({"DS": 30})), PrivateSum(0.4, 1.0, clip=CLIP, reproducible=True)
    ),
}
Change = Callable[[Message], Message]
START = ProbabilisticSoftmax().start(1)


class Changed(InProcessGrid):
    """An in-process grid that records replies, and whose server may change messages; some nodes die at a message."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.change: Change = lambda message: message
        self.dies: set[tuple[int, str]] = set()
        self.dead: set[int] = set()
        self.received: list[tuple[int, str, Message]] = []

    def deliver(self, message: Message) -> Message:
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        self.dead |= {node} if (node, kind) in self.dies else set()
        if node in self.dead:
            return Message(error=Error(code=ErrorCode.NODE_UNAVAILABLE, reason="killed"), reply_to=message)
        reply = super().deliver(self.change(message))
        self.received.append((node, kind, deepcopy(reply)))  # the server empties what it has read
        return reply


def task(clients: int = len(SIZES)) -> Task:
    return small_task(tuple(SIZES[one % 6] for one in range(clients)), (8,) * clients, ProbabilisticSoftmax(lr=1.0))


def trained(made: Task) -> np.ndarray:
    """The update of each client in round 1."""
    with LocalFleet(made) as local:
        only = [InTime(lambda index, clients, seed, client=client: {client: None}) for client in range(len(SIZES))]
        return np.stack([play(local, fedavg(), one, rounds=1)[1] for one in only]) - START


def fleet_of(made: Task, configs: Iterable[dict[str, Any]] = ()) -> tuple[GridFleet, Changed]:
    app = make_client_app(lambda context: made.client(int(context.node_config["partition-id"])))
    grid = Changed(app, len(made.federation.names), configs=list(configs))
    fleet = GridFleet(grid, made.server())
    fleet.meet(len(made.federation.names))
    return fleet, grid


def play(fleet: Fleet, recipe: Recipe, collect: Any, rounds: int = 3) -> tuple[list[Record], np.ndarray]:
    host = Host.of(fleet, rounds)
    state, _ = initial_state(recipe, host, fleet.server.first_model(1), 5)
    records = []
    for _ in range(rounds):
        state, record = run_round(state, recipe, host, collect, seed=5)
        records.append(record)
    return records, state.model


def selection(name: str) -> Any:
    return Poisson(1.0) if name == "private" else Uniform(0.8)


@pytest.mark.parametrize("name", RECIPES)
def test_facts_first_gives_the_same_bits_on_both_fleets(name: str):
    made, recipe = task(), RECIPES[name]()
    with LocalFleet(made) as local:
        together, expected = play(local, recipe, InTime(selection(name)))
        first, ours = play(local, recipe, FactsFirst(selection(name)))
    theirs, other = play(fleet_of(made)[0], recipe, FactsFirst(selection(name)))
    assert ours.tobytes() == expected.tobytes() == other.tobytes()
    for one, two, three in zip(together, first, theirs, strict=True):
        assert one.weights.weights.tolist() == two.weights.weights.tolist()
        assert one.bytes_up == two.bytes_up == three.bytes_up
        assert [note for note in two.notes if note.kind != "hidden"] == list(one.notes) or name == "private"
        assert two.notes == three.notes
        assert two.diagnostics is None


@pytest.mark.parametrize("name", RECIPES)
def test_a_masked_sum_is_the_plain_one_within_the_stated_bound(name: str):
    made, recipe, collect = task(), RECIPES[name](), FactsFirst(selection(name), Masking(CLIP))
    with LocalFleet(made) as local:
        _, expected = play(local, recipe, FactsFirst(selection(name)), rounds=1)
        _, simulated = play(local, recipe, collect, rounds=1)
    records, model = play(fleet_of(made)[0], recipe, collect, rounds=1)
    assert model.tobytes() == simulated.tobytes()
    bound = records[0].numbers["error"]
    assert bound < 1e-6 * CLIP
    # The integer weights differ from the weights by less than one unit each, hence the second term.
    moved = abs(expected - START).max()
    assert abs(model - expected).max() <= bound + len(SIZES) * 2.0**-24 * CLIP + 1e-6 * moved
    units = records[0].facts["units"]
    if name != "private":
        np.testing.assert_allclose(units / units.sum(), records[0].weights.weights, atol=1e-6)


@pytest.mark.parametrize("kind", [SHARE, MASKED, UNMASK])
def test_nodes_that_are_lost_between_the_exchanges_are_drop_outs(kind: str):
    made, collect = task(), FactsFirst(Uniform(1.0), Masking(CLIP))
    fleet, grid = fleet_of(made)
    grid.dies = {(1001, kind), (1004, kind)}
    (record,), model = play(fleet, fedavg(), collect, rounds=1)
    gone = () if kind == UNMASK else (1, 4)  # at the last step the update is already in the sum
    assert record.ids == tuple(client for client in range(6) if client not in gone)
    assert set(record.dropped) == set(gone)
    samples = np.array([SIZES[client] for client in record.ids], float)
    exact = START + (samples / samples.sum()) @ trained(made)[list(record.ids)]
    assert abs(model - exact).max() < 1e-4


def test_too_few_uploads_leave_the_model_unchanged_and_reveal_nothing():
    fleet, grid = fleet_of(task())
    grid.dies = {(1000 + client, MASKED) for client in (0, 2, 3)}
    (record,), model = play(fleet, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
    assert record.ids == ()
    assert model.tobytes() == START.tobytes()
    assert "only 3 of 6 clients uploaded; a masked sum needs 4" in record.dropped[1]
    assert not [kind for _, kind, _ in grid.received if kind == UNMASK]
    assert any(note.kind == "nobody" for note in record.notes)


def vectors(grid: Changed) -> dict[int, np.ndarray]:
    return {node - 1000: array(reply.content, "masked") for node, kind, reply in grid.received if kind == MASKED}


def test_the_server_receives_nothing_that_can_be_told_from_uniform():
    uniform: list[float] = []
    for _ in range(15):  # the model is small, so its masked values are collected over rounds
        fleet, grid = fleet_of(task())
        play(fleet, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
        for node, kind, reply in grid.received:
            assert (kind == MASKED) == bool(reply.content.array_records), (node, kind)
        uniform += [float(value) / 2**32 for one in vectors(grid).values() for value in one]
    assert len(uniform) > 1000
    assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-4
    counts = np.bincount((np.array(uniform) * 2**32).astype(np.uint64) & np.uint64(15), minlength=16)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 0.1


def guess(made: Task, grid: Changed) -> list[float]:
    """The attack of a curious server: it reads each vector as if nothing hid it, and compares with the true update."""
    updates = trained(made)
    read = {client: one[:-1].view(np.int32).astype(np.float64) for client, one in vectors(grid).items()}
    return [
        float(np.dot(one, updates[client]) / np.linalg.norm(one) / np.linalg.norm(updates[client]))
        for client, one in read.items()
    ]


def test_an_attack_succeeds_only_if_masking_is_broken(monkeypatch: pytest.MonkeyPatch):
    made = task()
    fleet, grid = fleet_of(made)
    play(fleet, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
    assert max(map(abs, guess(made, grid))) < 0.9  # 15 values: two random vectors may be similar, but not the same
    for name in ("add_stream", "add_pair_masks"):
        monkeypatch.setattr(kept, name, lambda *arguments, **more: None)
    broken, grid = fleet_of(made)
    play(broken, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
    assert min(guess(made, grid)) > 0.999


@pytest.fixture
def enrolled(tmp_path: Path) -> list[dict[str, Any]]:
    """Node configurations with keys, and the roster that all nodes trust."""
    keys = [make_node_key(tmp_path, f"node{client}") for client in range(6)]
    prints = [read_fingerprint(key.with_suffix(".pub")) for key in keys]
    entries = tuple(EnrolledClient(client=one, key=key) for one, key in enumerate(prints))
    write_enrolment(tmp_path / "enrolled.toml", Enrolment(client=entries))
    return [
        {"partition-id": one, "key": str(key), "roster": str(tmp_path / "enrolled.toml")}
        for one, key in enumerate(keys)
    ]


def swap_keys(message: Message) -> Message:
    """A server that puts its own keys in the place of client 2's."""
    if message.metadata.message_type == SHARE:
        record = message.content.config_records["config"]
        clients, publics = list(record["clients"]), list(record["publics"])
        if 2 in clients:
            publics[clients.index(2)] = Secrets.draw().public
            record["publics"] = publics
    return message


def test_a_server_that_swaps_a_public_key_is_caught(enrolled: list[dict[str, Any]]):
    fleet, grid = fleet_of(task(), enrolled)
    collect = FactsFirst(Uniform(1.0), Masking(CLIP))
    (record,), _ = play(fleet, fedavg(), collect, rounds=1)
    assert record.ids == tuple(range(6))
    grid.change, before = swap_keys, len(grid.received)
    (record,), model = play(fleet, fedavg(), collect, rounds=1)
    assert record.ids == ()
    assert "the keys of client 2 are not signed by its enrolled node key" in record.dropped[0]
    assert model.tobytes() == START.tobytes()
    assert not [kind for _, kind, _ in grid.received[before:] if kind == UNMASK]


def test_without_a_roster_a_swapped_key_goes_unnoticed_which_the_docs_say():
    fleet, grid = fleet_of(task())
    grid.change = swap_keys
    (record,), _ = play(fleet, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
    assert all("not signed" not in reason for reason in record.dropped.values())


def test_a_node_answers_each_step_once_and_never_reveals_both_secrets():
    fleet, grid = fleet_of(task())

    def twice(message: Message) -> Message:
        kind, node = message.metadata.message_type, message.metadata.dst_node_id
        if kind == UNMASK and node == 1000:
            record = message.content.config_records["config"]
            both = {**dict(record), "dropped": [*record["uploaded"]]}
            message.content["config"] = ConfigRecord(both)
        return message

    grid.change = twice
    (record,), _ = play(fleet, fedavg(), FactsFirst(Uniform(1.0), Masking(CLIP)), rounds=1)
    replies = [reply.error.reason for node, kind, reply in grid.received if kind == UNMASK and node == 1000]
    assert "both secrets of a client" in replies[0]
    assert record.ids == tuple(range(6))  # five of six shares are enough
    ((_, again),) = fleet.upload(1, [0])
    assert "keeps no update" in again


def test_a_client_that_is_not_finite_is_dropped_in_both_ways(monkeypatch: pytest.MonkeyPatch):
    made = task()
    original = kept.keep_update

    def broken(half: ClientHalf, context: Context, index: int, update: np.ndarray, **more: Any) -> Any:
        return original(half, context, index, update * np.nan if half.data.id == 3 else update, **more)

    monkeypatch.setattr("fedmerit.flower.clientapp.keep_update", broken)
    for masking in (None, Masking(CLIP)):
        (record,), model = play(fleet_of(made)[0], fedavg(), FactsFirst(Uniform(1.0), masking), rounds=1)
        assert record.ids == (0, 1, 2, 4, 5)
        assert "NaN, infinity" in record.dropped[3]
        assert np.isfinite(model).all()


def test_a_round_of_two_is_not_masked_but_refused():
    fleet, grid = fleet_of(task())
    (record,), _ = play(fleet, fedavg(), FactsFirst(Uniform(0.3), Masking(CLIP)), rounds=1)
    assert record.ids == ()
    assert "needs at least 3 clients" in next(iter(record.dropped.values()))
    assert {kind for _, kind, _ in grid.received} & {SHARE, MASKED, UNMASK} == set()
    assert {kind for _, kind, _ in grid.received} >= {TRAIN}


@pytest.mark.parametrize("clients", [3, 10, 60, 300])
def test_graphs_are_regular_symmetric_and_connected(clients: int):
    graph = neighbours(list(range(5, 5 + clients)), seed=1, index=2)
    assert {len(around) for around in graph.values()} == {degree(clients)}
    assert all(client in graph[one] and client not in graph[client] for client in graph for one in graph[client])
    reached, edge = {5}, {5}
    while edge:
        edge = {one for client in edge for one in graph[client]} - reached
        reached |= edge
    assert len(reached) == clients
    assert 2 * threshold(degree(clients) + 1) > degree(clients) + 1
