"""Replies of strangers: 2,000 real replies with something wrong in each, and not one ends a round.

FEDMERIT_FUZZ is how many times as many are tried (`make fuzz`).
"""

import io
import os
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from helpers import ProbabilisticSoftmax
from test_faults import BAD, Meddling, next_round, task
from test_merit import NODES, SETTINGS, app_for, record, values

from fedmerit import DS, LD, Task, device_aware, m2f, prioritized
from fedmerit.core.criteria.criterion import criterion
from fedmerit.core.criteria.loss import Agnostic, LossPower
from fedmerit.core.recipe import Recipe
from fedmerit.core.showing import MOST_TEXT
from fedmerit.core.state import State
from fedmerit.core.types import Family
from fedmerit.flower import GridFleet, InProcessGrid, Merit

TIMES = int(os.environ.get("FEDMERIT_FUZZ", "1"))
HUGE: tuple[Any, ...] = (
    *(2**63, 2**64 - 1, 10**15, -1, 0, 1e300, 1.7e308, float("nan"), float("inf"), -0.0),
    *([], [1], [1.0] * 3, [2**63], [float("nan")]),
)
TEXTS = ("", "\x1b[2J\x1b]0;owned\x07", "x" * 100_000, "\ud800", "a\nb", "../../etc/passwd")


def npy(header: str | bytes, body: bytes = b"", version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return b"\x93NUMPY" + version + struct.pack("<H", len(text) if length is None else length) + text + body


def archive() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, update=np.zeros(100_000))
    return file.getvalue()


HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (12,), 'x': 1}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (12,)}",
    "{'descr': '<f4', 'fortran_order': 0, 'shape': [12]}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-12,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9999999999)}",
    "(" * 900,
    "-" * 900 + "1",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (12",
    "__import__('os').system('true')",
    "{[]: 1}",
    "",
)
BYTES: tuple[Callable[[], bytes], ...] = (
    lambda: b"PK\x03\x04aaaaaaaa",  # the 12 bytes that once ended a federation
    archive,
    lambda: b"",
    lambda: b"\x93NUMPY",
    lambda: b"\x80\x04\x95pickle",
    lambda: npy("x" * 10, length=60_000),
    lambda: npy(HEADERS[0], version=b"\x09\x00"),
    *((lambda one=one: npy(one, b"\0" * 48)) for one in HEADERS),
)


def mutated_bytes(random: np.random.Generator, data: bytes) -> bytes:
    """The bytes of an array, otherwise."""
    way = random.integers(4)
    if way == 0:
        return BYTES[random.integers(len(BYTES))]()
    changed = bytearray(data)
    if way == 1:
        return bytes(changed[: random.integers(len(changed) + 1)])
    for place in random.integers(0, len(changed) if way == 2 else min(len(changed), 90), random.integers(1, 9)):
        changed[place] = random.integers(256)
    return bytes(changed)


def mutate(random: np.random.Generator, content: RecordDict) -> None:
    """Change something of a reply: an array, a number, a setting, or a whole record."""
    key = str(random.choice(list(content)))
    held = content[key]
    if random.random() < 0.08:
        del content[key]
    elif isinstance(held, ArrayRecord) and len(held):
        name = str(random.choice(list(held)))
        arrays = dict(held.items())
        old = arrays.pop(name)
        if random.random() < 0.9:
            arrays[name] = Array(old.dtype, tuple(old.shape), old.stype, mutated_bytes(random, old.data))
        content[key] = ArrayRecord(arrays)
    elif isinstance(held, MetricRecord):
        numbers = dict(held.items()) or {"samples": 1}
        name = str(random.choice([*numbers, "loss", "made up"]))
        numbers[name] = HUGE[random.integers(len(HUGE))]
        content[key] = MetricRecord(numbers)
    elif isinstance(held, ConfigRecord):
        settings: dict[str, Any] = dict(held.items()) or {"reason": ""}
        name = str(random.choice(list(settings)))
        others: tuple[Any, ...] = (*TEXTS, *HUGE[:7], True, b"\0")
        settings[name] = others[random.integers(len(others))]
        content[key] = ConfigRecord(settings)


@criterion("Exp", Family.MODEL, "of samples, as a user may write it", facts=["samples"])
def exponential(cohort: Any, history: Any) -> Any:
    return [float(np.float64(10.0) ** samples) for samples in cohort.facts["samples"]]


FLEETS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "prioritized": (lambda: prioritized(DS, LD), ("train", "evaluate", "query.hello")),
    "m2f": (lambda: m2f(DS, initial=0.0), ("train", "train.reward", "evaluate")),
    "dafl": (lambda: device_aware(DS, LD), ("train", "evaluate")),
    "qffl": (lambda: prioritized(LossPower(2.0), Agnostic(0.5)), ("train",)),
    "own": (lambda: prioritized(exponential, DS), ("train",)),
}


@pytest.mark.parametrize("name", FLEETS)
def test_no_reply_ends_a_round_of_a_fleet(name: str, caplog: pytest.LogCaptureFixture):
    make, kinds = FLEETS[name]
    recipe, random = make(), np.random.default_rng(24)
    made = Task(task().federation, ProbabilisticSoftmax())
    plain = made.learner

    def change(reply: Message) -> Iterable[Message]:
        if reply.has_content():
            for _ in range(random.integers(1, 4)):
                if len(reply.content):
                    mutate(random, reply.content)
        return [reply]

    for trial in range(220 * TIMES):
        grid = Meddling(made, change, kinds[trial % len(kinds)])
        fleet = GridFleet(grid, made.server(), timeout=0.0)
        fleet.meet(3)
        state = State(plain.start(0))
        state, told = next_round(fleet, recipe, state, trial)
        assert np.isfinite(state.model).all()
        assert set(told.dropped) <= {BAD}
        assert {0, 1, 3} <= set(told.ids)
        for text in [*told.dropped.values(), *(one.reason for one in told.rewards.verdicts.values())]:
            assert len(text) <= MOST_TEXT
            assert text.isprintable()
        assert np.isfinite(told.weights.weights).all()
    assert all(logged.getMessage().isprintable() for logged in caplog.records)


class Spoiling(InProcessGrid):
    """A grid on which one node's answers are mutated, in one kind of exchange at a time."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        super().__init__(app_for(recipe), NODES)
        self.random = np.random.default_rng(seed)

    def deliver(self, message: Message) -> Message | None:
        reply = super().deliver(message)
        if message.metadata.dst_node_id == 1000 + BAD and reply.has_content():
            mutate(self.random, reply.content)
        return reply


@pytest.mark.parametrize("make", [lambda: prioritized(DS, LD), lambda: device_aware(DS, LD)])
def test_no_reply_ends_a_round_of_merit(make: Callable[[], Recipe], caplog: pytest.LogCaptureFixture):
    recipe = make()
    for trial in range(150 * TIMES):
        strategy = Merit(recipe, **SETTINGS)
        result = strategy.start(Spoiling(recipe, trial), record(np.arange(9.0)), num_rounds=2)
        assert np.isfinite(values(result.arrays)).all()
        for one in strategy.records:
            assert {place for place in range(NODES) if place != BAD} <= set(one.ids)
            assert all(len(text) <= MOST_TEXT and text.isprintable() for text in one.dropped.values())
    assert "\x1b[2J" not in caplog.text
