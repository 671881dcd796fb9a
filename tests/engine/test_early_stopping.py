"""Early stopping by the accuracy on validation rows, and what callbacks are called with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers import random_split, small_task
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Task, fedavg, federate, m2f
from fedmerit.core.state import Record
from fedmerit.engine.stopping import EarlyStopping
from fedmerit.errors import ConfigError


def validated_task() -> Task:
    task = small_task()
    return Task(replace(task.federation, validation=random_split((4, 4, 4, 4), 3)), task.learner)


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 6))
def test_it_stops_only_where_nothing_rose(accuracies: list[float], patience: int) -> None:
    stopped = EarlyStopping(patience)(accuracies)
    best = max(range(len(accuracies)), key=lambda place: accuracies[place], default=0)
    assert stopped == (len(accuracies) - 1 - best >= patience)


def test_a_run_stops_and_says_so() -> None:
    seen: list[Sequence[float]] = []

    def after_three(accuracies: Sequence[float]) -> bool:
        seen.append(list(accuracies))
        return len(accuracies) == 3

    records: list[Record] = []
    run = federate(validated_task(), fedavg(), rounds=9, stop=after_three, on_record=records.append)
    assert run.ledger.last_round() == 3
    assert [len(values) for values in seen] == [1, 2, 3]
    assert all(0 <= value <= 1 for value in seen[-1])
    assert [record.index for record in records] == [1, 2, 3]
    assert "stopped: accuracy on validation rows" in next(e for e in run.events() if e.kind == "stopped").text
    assert run.accuracy == records[-1].evaluation.accuracy  # type: ignore[union-attr]


def test_a_run_without_reason_to_stop_is_the_same_run() -> None:
    plain, watched = (federate(validated_task(), fedavg(), rounds=4, stop=stop) for stop in (None, lambda seen: False))
    assert plain.model.tobytes() == watched.model.tobytes()


def test_what_early_stopping_needs() -> None:
    with pytest.raises(ConfigError, match="no client has any"):
        federate(small_task(), fedavg(), stop=EarlyStopping())
    with pytest.raises(ConfigError, match="leave evaluate_every at 1"):
        federate(validated_task(), fedavg(), stop=EarlyStopping(), evaluate_every=2)
    with pytest.raises(ConfigError, match="each client has its own"):
        federate(validated_task(), m2f("DS"), stop=EarlyStopping())
    with pytest.raises(ConfigError, match="a patience of 1 round or more"):
        EarlyStopping(0)
