"""Faults on a Grid: whatever a node answers, or does not, it is left out with the reason and the round goes on."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from helpers import SoftmaxLearner, random_split, small_task
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmerit import DS, LD, Recipe, Task, fedavg, m2f, prioritized
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.state import Record, State
from fedmerit.errors import RunFailed
from fedmerit.flower import GridFleet, InProcessGrid, grid, make_client_app
from fedmerit.flower.clientapp import personal_model
from fedmerit.flower.grid import SafeGrid, exchange, push
from fedmerit.flower.messages import ARRAYS, DTYPES, HELLO, METRICS, InvalidRecord, pack, read_array

BAD = 2
"""The client that misbehaves."""


def task() -> Task:
    made = small_task((5, 12, 20, 8), (6, 6, 6, 6), SoftmaxLearner())
    return Task(replace(made.federation, validation=random_split((4,) * 4, 3)), made.learner)


class Meddling(InProcessGrid):
    """A grid on which one node's answers to training are changed on their way."""

    def __init__(self, made: Task, change: Callable[[Message], Iterable[Message]], kind: str = "train") -> None:
        app = make_client_app(lambda context: made.client(int(context.node_config["partition-id"])))
        super().__init__(app, len(made.federation.names))
        self.change, self.kind, self.extra = change, kind, list[Message]()

    def deliver(self, message: Message) -> Message | None:
        reply = super().deliver(message)
        if message.metadata.dst_node_id != 1000 + BAD or message.metadata.message_type != self.kind:
            return reply
        first, *more = [*self.change(reply), None]
        self.extra += [one for one in more if one is not None]
        return first

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        extra, self.extra = self.extra, []
        return [*super().pull_messages(message_ids), *extra]


def next_round(fleet: GridFleet, recipe: Recipe, state: State | None = None, seed: int = 1) -> tuple[State, Record]:
    """One round in which all clients are asked; from the first model unless a state is given."""
    start = State(fleet.server.first_model(0)) if state is None else state
    return run_round(start, recipe, Host.of(fleet), InTime(Uniform(1.0)), seed)


def fleet_on(grid: InProcessGrid) -> GridFleet:
    """A fleet whose four clients are connected."""
    fleet = GridFleet(grid, task().server(), timeout=0.3)
    fleet.meet(4)
    return fleet


def honest(reply: Message) -> Iterable[Message]:
    return [reply]


def played(change: Callable[[Message], Iterable[Message]], recipe: Recipe | None = None, kind: str = "train") -> Record:
    fleet = fleet_on(Meddling(task(), change, kind))
    state, record = next_round(fleet, recipe or prioritized(DS, LD))
    assert np.isfinite(state.model).all()
    return record


def changed(edit: Callable[[RecordDict], None]) -> Callable[[Message], Iterable[Message]]:
    def change(reply: Message) -> Iterable[Message]:
        edit(reply.content)
        return [reply]

    return change


def with_update(array: Any) -> Callable[[Message], Iterable[Message]]:
    return changed(lambda content: content.__setitem__(ARRAYS, ArrayRecord({"update": Array(np.asarray(array))})))


def with_facts(**facts: Any) -> Callable[[Message], Iterable[Message]]:
    def edit(content: RecordDict) -> None:
        content[METRICS] = MetricRecord({**dict(content[METRICS]), **facts})

    return changed(edit)


def without(key: str) -> Callable[[Message], Iterable[Message]]:
    return changed(lambda content: content.pop(key))


def as_error(reply: Message) -> Iterable[Message]:
    broken = Message(error=Error(code=0, reason="out of memory"), reply_to=reply)
    broken.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    broken.metadata.__dict__["_src_node_id"] = 1000  # Flower's own errors may carry another node's id
    return [broken]


def unreadable(content: RecordDict) -> None:
    content[ARRAYS] = ArrayRecord({"update": Array(dtype="float32", shape=(12,), stype="numpy.ndarray", data=b"junk")})


def pickled(content: RecordDict) -> None:
    import io

    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    content[ARRAYS] = ArrayRecord(
        {"update": Array(dtype="object", shape=(1,), stype="numpy.ndarray", data=file.getvalue())}
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda reply: [], "no answer within"),
        (as_error, "out of memory"),
        (with_update(np.full(12, np.nan, np.float32)), "NaN"),
        (with_update(np.full(12, np.inf, np.float32)), "infinity"),
        (with_update(np.zeros(5, np.float32)), "shape (5,)"),
        (with_update(np.zeros((3, 4), np.float32)), "shape (3, 4)"),
        (with_update(np.zeros(12, np.float64)), "float64"),
        (with_update(np.zeros(12, np.int32)), "int32"),
        (changed(unreadable), "cannot be read"),
        (changed(pickled), "dtype object"),
        (without(ARRAYS), "'update' is missing"),
        (without(METRICS), "fact samples is missing"),
        (with_facts(samples=float("nan")), "fact samples"),
        (with_facts(samples=-3), "fact samples"),
        (with_facts(labels=[1, 2]), "fact labels"),
        (without("config"), "'personal'"),
    ],
)
def test_one_bad_answer_is_left_out_with_its_reason(change: Any, says: str):
    record = played(change)
    assert record.ids == (0, 1, 3)
    assert list(record.dropped) == [BAD]
    assert says in record.dropped[BAD]
    assert record.weights.weights.sum() == pytest.approx(1)


def test_repeated_and_made_up_answers_change_nothing():
    def twice(reply: Message) -> Iterable[Message]:
        stranger = Message(pack({"update": np.full(12, 9, np.float32)}, metrics={"samples": 10**6}), reply_to=reply)
        stranger.metadata.__dict__["_reply_to_message_id"] = "of another round"
        return [reply, reply, stranger]

    record, plain = played(twice), played(honest)
    assert record.ids == plain.ids == (0, 1, 2, 3)
    assert record.weights.weights.tolist() == plain.weights.weights.tolist()
    assert record.dropped == {}


def test_a_node_that_is_not_there():
    grid = Meddling(task(), honest)
    fleet = fleet_on(grid)
    del grid._contexts[1000 + BAD]
    _, record = next_round(fleet, fedavg())
    assert record.dropped == {BAD: "its node is not connected"}
    assert record.evaluation.sizes.tolist() == [6, 6, 0, 6]


def test_nobody_answers_and_the_model_is_kept():
    grid = Meddling(task(), honest)
    fleet = fleet_on(grid)
    grid._contexts.clear()
    start = State(fleet.server.first_model(0))
    state, record = next_round(fleet, fedavg(), start)
    assert (state.model == start.model).all()
    assert len(record.dropped) == 4
    assert record.weights is None


@pytest.mark.parametrize("wrap", [False, True])
def test_messages_are_pushed_again_to_a_superlink_that_was_restarted_during_the_push(
    monkeypatch: pytest.MonkeyPatch, wrap: bool
):
    monkeypatch.setattr(grid, "POLL_SECONDS", 0.0)
    tries = list[int]()

    class Restarted(Meddling):
        down = 2

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            tries.append(len(list(messages)))
            if len(tries) <= self.down:
                raise ObjectPushError("object", 1, "session")
            return super().push_messages(messages)

    restarted = Restarted(task(), honest)
    messages = [Message(pack(config={}), dst_node_id=1000, message_type=HELLO)]
    if wrap:
        assert len(list(SafeGrid(restarted).send_and_receive(messages))) == 1
    else:
        assert exchange(restarted, {0: (1000, pack(config={}))}, HELLO, 1.0, dict).failed == {}
    assert tries == [1, 1, 1]
    restarted.down = 10**6
    with pytest.raises(ObjectPushError):
        push(restarted, messages)
    assert len(tries) == 3 + grid.PUSH_TRIES


def test_a_node_that_is_gone_is_not_asked_again_in_its_round():
    """On a deployment each exchange would wait for it, a minute each."""
    asked = list[str]()

    class Grid(Meddling):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            asked.extend(one.metadata.message_type for one in messages if one.metadata.dst_node_id == 1000 + BAD)
            return super().push_messages(messages)

        def get_node_ids(self) -> Iterable[int]:
            return [1000, 1001, 1002, 1003]  # the SuperLink takes a while to know

    grid = Grid(task(), honest)
    fleet = fleet_on(grid)
    away = grid._contexts.pop(1000 + BAD)
    state, record = next_round(fleet, fedavg())
    assert "node unavailable" in record.dropped[BAD]
    assert asked == ["query.hello", "train"]
    grid._contexts[1000 + BAD] = away
    _, record = next_round(fleet, fedavg(), state)
    assert not record.dropped
    assert asked == ["query.hello", "train", "query.hello", "train", "evaluate"]


REFUSALS: dict[str, tuple[Callable[[Message], Iterable[Message]], str]] = {
    "before": (with_facts(before=[1.0, 2.0]), "must be numbers"),
    "after": (with_facts(after=[1.0, 2.0]), "must be numbers"),
    "lost": (lambda reply: [], "no answer"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_reward_without_a_verdict_is_not_taken(name: str):
    change, says = REFUSALS[name]
    verdicts = played(change, m2f(DS, initial=0.0), kind="train.reward").rewards.verdicts
    assert not verdicts[BAD].accepted
    assert says in verdicts[BAD].reason
    assert set(verdicts) == {0, 1, 2, 3}


def test_the_in_process_grid_is_a_whole_grid():
    grid = Meddling(task(), honest)
    assert [node.node_id for node in grid.get_nodes()] == [1000, 1001, 1002, 1003]
    assert grid.run.run_id == 1
    message = grid.create_message(pack(config={}), "query.hello", 1001, "round 1")
    (reply,) = grid.send_and_receive([message])
    assert reply.content["config"]["client"] == 1


def test_waiting_for_clients_has_an_end():
    fleet = GridFleet(Meddling(task(), honest), task().server(), timeout=0.3)
    with pytest.raises(RunFailed, match="4 of 9 clients connected"):
        fleet.meet(9, patience=0.3)


@pytest.mark.parametrize(
    "metrics",
    [{}, {"correct": [1]}, {"correct": [7], "size": [6]}, {"correct": [-1], "size": [6]}, {"correct": 3, "size": [6]}],
)
def test_tests_that_cannot_be_true_do_not_count(metrics: dict[str, Any]):
    record = played(changed(lambda content: content.__setitem__(METRICS, MetricRecord(metrics))), kind="evaluate")
    assert record.evaluation.sizes.tolist() == [6, 6, 0, 6]


@pytest.mark.parametrize("own", ["keep", "reset"])
@pytest.mark.parametrize("lost", ["train", "train.reward", "all that the node kept"])
def test_a_client_goes_on_from_the_model_that_the_server_knows(lost: str, own: Any):
    """Its answer got lost after it had changed its own model, or its node lost the model: both agree again."""
    rounds, fleets = 3, []
    for breaks in (False, True):
        grid = Meddling(task(), honest, lost)
        fleet = fleet_on(grid)
        state = State(fleet.server.first_model(0))
        for index in range(1, rounds + 1):
            grid.change = (lambda reply: []) if breaks and index == 2 else honest
            if breaks and index == 2 and lost not in ("train", "train.reward"):
                old = grid._contexts.pop(1000 + BAD)  # started again, it is another node
                grid._contexts[2000] = replace(old, node_id=2000, state=RecordDict())
            state, record = next_round(fleet, m2f(DS, training=own), state)
            assert fleet.evaluate_personal(state.model).sizes.sum() == 24
            for client, context in enumerate(sorted(grid._contexts.values(), key=partition)):
                theirs = personal_model(context)
                assert theirs is not None
                agrees = np.array_equal(fleet.copies.rows.array[client], theirs)
                assert agrees or (breaks and index == 2 and client == BAD)
        assert not record.dropped
        fleets.append(fleet.copies.rows.array.copy() if fleet.copies else None)
    same = lost == "all that the node kept"
    assert np.array_equal(fleets[0], fleets[1]) == same


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


KINDS = st.sampled_from([np.dtype(kind) for kind in DTYPES])


@given(arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0)), st.sampled_from("CF"))
def test_what_numpy_writes_is_read_back(values: np.ndarray, order: str):
    kept = np.asarray(values, order=order)
    read = read_array(Array(kept), "x", shape=values.shape)
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)
    assert not read.flags.writeable


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (Array(np.zeros(3, ">f4")), "dtype >f4"),
        (Array(np.zeros(3, bool)), "dtype bool"),
        (Array(np.zeros(3, complex)), "dtype complex128"),
        (Array(np.array(["a"])), "dtype <U1"),
        (Array("float32", (3,), "torch", b""), "serialised as 'torch'"),
        (Array("float32", (3,), "numpy.ndarray", Array(np.zeros(3)).data[:-1]), "23 bytes are not shape (3,)"),
        (Array("float32", (3,), "numpy.ndarray", Array(np.zeros(3)).data + b"1"), "25 bytes are not shape (3,)"),
    ],
)
def test_what_is_not_numbers_is_refused_with_the_reason(array: Array, says: str):
    with pytest.raises(InvalidRecord, match="x") as refused:
        read_array(array, "x")
    assert says in str(refused.value)


def test_a_message_that_flower_cannot_make_costs_its_node_alone():
    class Grid(Meddling):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))  # gone from the grid, as Flower confirms before it reads
            if any(one.metadata.src_node_id == 1000 + BAD and one.metadata.message_type == "train" for one in replies):
                raise ValueError("Unknown object \x1b[2J")
            return replies

    _, record = next_round(fleet_on(Grid(task(), honest)), fedavg())
    assert record.ids == (0, 1, 3)
    assert record.dropped == {BAD: "its reply cannot be read: ValueError: Unknown object \\x1b[2J"}
