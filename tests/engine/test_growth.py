"""Ten times as many clients take about ten times as long, in CPU seconds: what must be linear in clients.

Quadratic work takes a hundred times as long. The bound between them leaves room for a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from helpers import CannedFleet

from fedmerit import DS, LD, prioritized
from fedmerit.cli.criteria_file import read_criteria
from fedmerit.core.host import Host
from fedmerit.core.models.shared import Assignment
from fedmerit.core.round import aggregate_round
from fedmerit.core.state import NOT_TESTED, Clock, Record, RoundResult, State, make_record
from fedmerit.core.types import Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import weigh
from fedmerit.store.frames import run_frame
from fedmerit.store.ledger import Ledger

FEW, MANY, MOST = 1_000, 10_000, 40.0
RECIPE = prioritized(LD, DS, normalise="max")


def aggregated(clients: int) -> Callable[[], RoundResult]:
    random = np.random.default_rng(0)
    facts = tuple({"samples": float(n), "labels": float(1 + n % 10)} for n in random.integers(1, 500, clients))
    rows = random.normal(size=(clients, 8)).astype(np.float32)
    state = State(np.zeros(8, np.float32))
    replies = Replies(tuple(range(clients)), Updates(rows), facts)
    host = Host(CannedFleet(rows, facts), tuple(map(str, range(clients))))  # type: ignore[arg-type]
    assignment = Assignment((state.model,), dict.fromkeys(range(clients), 0))
    return lambda: aggregate_round(state, RECIPE, replies, host, assignment, 0, Clock())


def record_of(found: RoundResult) -> Record:
    return make_record(RECIPE.priority, found, NOT_TESTED, 0, 0, Clock())


def framed(clients: int) -> Callable[[], object]:
    found = aggregated(clients)()
    ledger = Ledger.create(None, [f"client {number}" for number in range(clients)], {"recipe": "{}"})
    ledger.append(record_of(found))
    return lambda: run_frame(ledger, "weights")


def appended(clients: int) -> Callable[[], object]:
    record, names = record_of(aggregated(clients)()), [f"client {number}" for number in range(clients)]

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
        weigh(table.columns(["LD", "DS"]), ("LD", "DS"), RECIPE.score, "max", np.ones(clients))

    return work


def seconds(work: Callable[[], object]) -> float:
    """The least of a few: what else the machine does only adds."""
    times = []
    for _ in range(3):
        begun = process_time()
        work()
        times.append(process_time() - begun)
    return min(times)


@pytest.mark.parametrize("what", ["aggregate", "append", "frame", "weigh"])
def test_ten_times_as_many_clients_take_about_ten_times_as_long(what: str, tmp_path: Path) -> None:
    make = {"aggregate": aggregated, "append": appended, "frame": framed, "weigh": lambda n: weighed(n, tmp_path)}[what]
    few, many = seconds(make(FEW)), seconds(make(MANY))
    assert many < MOST * few, f"{what}: {few:.4f} s for {FEW} clients, {many:.4f} s for {MANY}"
