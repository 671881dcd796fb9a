"""Ten times as many clients take about ten times as long, in CPU seconds: what must be linear in clients.

Quadratic work takes a hundred times as long. The bound between them leaves room for a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from fedmerit import DS, LD, prioritized
from fedmerit.cli.criteria_file import read_criteria
from fedmerit.core.round import settle
from fedmerit.core.state import Clock, Record, Settled, State, make_record
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import weigh
from fedmerit.store.frames import run_frame
from fedmerit.store.ledger import Ledger

FEW, MANY, MOST = 1_000, 10_000, 40.0
RECIPE = prioritized(LD, DS, normalise="max")


def settled(clients: int) -> Callable[[], Settled]:
    random = np.random.default_rng(0)
    facts = tuple({"samples": float(n), "labels": float(1 + n % 10)} for n in random.integers(1, 500, clients))
    rows = random.normal(size=(clients, 8)).astype(np.float32)
    state = State(np.zeros(8, np.float32))
    replies = Replies(tuple(range(clients)), Updates(rows), facts, {}, {})
    return lambda: settle(state, RECIPE, replies, judges=None, clients=clients, seed=0, clock=Clock())  # type: ignore[arg-type]


def record_of(found: Settled) -> Record:
    return make_record(RECIPE, found, None, 0, 0, Clock())


def framed(clients: int) -> Callable[[], object]:
    found = settled(clients)()
    ledger = Ledger.create(None, [f"client {number}" for number in range(clients)], {"recipe": "{}"})
    ledger.append(record_of(found))
    return lambda: run_frame(ledger, "weights")


def appended(clients: int) -> Callable[[], object]:
    record, names = record_of(settled(clients)()), [f"client {number}" for number in range(clients)]

    def work() -> None:
        with Ledger.create(None, names, {"recipe": "{}"}) as ledger:
            ledger.append(record)

    return work


def weighed(clients: int, folder: Path) -> Callable[[], object]:
    file = folder / f"{clients}.csv"
    lines = [f"client {number},{number % 97 + 1},{number % 10 + 1}" for number in range(clients)]
    file.write_text("\n".join(["client,DS,LD", *lines]))

    def work() -> None:
        table = read_criteria(file)
        weigh(table.columns(["LD", "DS"], []), ("LD", "DS"), RECIPE.score, "max", np.ones(clients))

    return work


def seconds(work: Callable[[], object]) -> float:
    """The least of a few: what else the machine does only adds."""
    times = []
    for _ in range(3):
        begun = process_time()
        work()
        times.append(process_time() - begun)
    return min(times)


@pytest.mark.parametrize("what", ["settle", "append", "frame", "weigh"])
def test_ten_times_as_many_clients_take_about_ten_times_as_long(what: str, tmp_path: Path) -> None:
    make = {"settle": settled, "append": appended, "frame": framed, "weigh": lambda n: weighed(n, tmp_path)}[what]
    few, many = seconds(make(FEW)), seconds(make(MANY))
    assert many < MOST * few, f"{what}: {few:.4f} s for {FEW} clients, {many:.4f} s for {MANY}"
