"""Selection: schedules keep to their rates exactly, for every recipe."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers import SoftmaxLearner, small_task
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import fedavg, federate
from fedmerit.core.collect.selection import Available, Schedule, Uniform, draw, is_within
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError

PAPER = ((0.2, 6), (0.5, 6), (1.0, 8))
rates = st.lists(st.tuples(st.floats(0.05, 1.0), st.integers(1, 4)), min_size=1, max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(rounds=st.integers(1, 30), rates=rates, clients=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_each_client_comes_exactly_as_often_as_its_rate_says(rounds, rates, clients, seed):  # type: ignore[no-untyped-def]
    schedule = Schedule(rounds, rates, (1, 3))
    chosen = [schedule(index, clients, seed) for index in range(1, rounds + 1)]
    counts = Counter(client for one in chosen for client in one)
    for client in range(clients):
        assert counts[client] == round(rounds * schedule.rate(client))
        assert len({one[client] for one in chosen if client in one}) <= 1, "a client has one number of epochs"
    assert all(list(one) == sorted(one) for one in chosen)
    assert all(1 <= (epochs or 0) <= 3 for one in chosen for epochs in one.values())
    assert chosen == [schedule(index, clients, seed) for index in range(1, rounds + 1)]


def test_the_papers_mix():
    schedule = Schedule(100, PAPER, (1, 3))
    counts = Counter(client for index in range(1, 101) for client in schedule(index, 40, 7))
    assert [counts[client] for client in (0, 5, 6, 11, 12, 19, 20, 26, 33)] == [20, 20, 50, 50, 100, 100, 20, 50, 100]
    assert {schedule(index, 40, 7).get(12) for index in range(1, 101)} <= {1, 2, 3}
    assert schedule(1, 40, 7) != schedule(2, 40, 7)
    assert schedule(1, 40, 7) != schedule(1, 40, 8)


def test_without_epochs_the_task_decides():
    assert set(Schedule(3)(1, 4, 0).values()) == {None}
    assert set(Uniform(0.5)(1, 4, 0).values()) == {None}


def test_fedavg_on_a_schedule_counts_epochs_and_rounds():
    schedule = Schedule(10, ((0.2, 1), (1.0, 3)), (2, 2))
    run = federate(small_task(), fedavg(), rounds=10, selection=schedule)
    work = run.ledger.work_done()
    assert {client: rounds for client, (rounds, _) in work.items()} == {0: 2, 1: 10, 2: 10, 3: 10}
    assert {client: rows for client, (_, rows) in work.items()} == {0: 20, 1: 240, 2: 400, 3: 160}


def test_epochs_reach_the_learner():
    """Clients that make as many passes as the learner would by itself: the same model, else another."""

    class Counting(SoftmaxLearner):
        def train(self, model, samples, seed, epochs=None):  # type: ignore[no-untyped-def]
            return SoftmaxLearner(epochs=epochs or self.epochs).train(model, samples, seed)

    def model(epochs: int | None) -> bytes:
        schedule = Schedule(3, ((1.0, 1),), None if epochs is None else (epochs, epochs))
        return federate(small_task(learner=Counting()), fedavg(), rounds=3, selection=schedule).model.tobytes()

    assert model(2) == model(None)
    assert model(3) != model(None)


def test_a_round_in_which_nobody_is_due_keeps_the_model():
    run = federate(small_task(), fedavg(), rounds=8, selection=Schedule(8, ((0.13, 4),)))
    nobody = [event.round for event in run.events() if event.kind == "nobody"]
    assert len(nobody) >= 4
    assert len(run.ledger.rounds()) == 8


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rates": ()}, "rate"),
        ({"rates": ((0.0, 1),)}, "rate"),
        ({"rates": ((1.1, 1),)}, "rate"),
        ({"rates": ((0.5, 0),)}, "rate"),
        ({"epochs": (0, 3)}, "epochs"),
        ({"epochs": (3, 1)}, "epochs"),
    ],
)
def test_bad_schedules_are_refused(settings: dict[str, object], says: str):
    with pytest.raises(ConfigError, match=says):
        Schedule(10, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_bad_fractions_are_refused(fraction: float):
    with pytest.raises(ConfigError, match="fraction"):
        Uniform(fraction)


def test_how_many_are_drawn():
    """A share is rounded and at least one; `over` asks more than are needed, rounded up, and never more than all."""
    assert [len(draw(share, 10, 0, "x", 1)) for share in (0.01, 0.24, 0.26, 1.0)] == [1, 2, 3, 10]
    assert [len(draw(0.3, 10, 0, "x", 1, over)) for over in (1.0, 1.1, 2.0, 9.0)] == [3, 4, 6, 10]
    assert draw(0.5, 10, 0, "x", 1) == tuple(sorted(draw(0.5, 10, 0, "x", 1)))
    assert len(Uniform(0.3, over=4 / 3)(1, 10, 0)) == 4, "4 / 3 of 3 is 4, whatever the rounding"


def test_those_who_are_there_are_drawn_once_each():
    there = Available(Uniform(0.5), ((8, 18, 1), (22, 6, 1)), hour_of=lambda index: [12.0, 23.0, 20.0][index % 3])
    for seed in range(20):
        assert list(there(0, 10, seed)) == [0, 2, 4, 6, 8], "half of ten, and five are there"
        assert list(there(1, 10, seed)) == [1, 3, 5, 7, 9]
    assert there(2, 10, 0) == {}
    few = Available(Uniform(0.2), ((8, 18, 1),), hour_of=lambda index: 12.0)
    assert {len(few(index, 10, 0)) for index in range(20)} == {2}
    assert len({tuple(few(index, 10, 0)) for index in range(20)}) > 3


def test_the_first_hour_is_within_and_the_last_is_not():
    assert [is_within(hour, (8, 18)) for hour in (7.9, 8, 17.9, 18)] == [False, True, True, False]
    assert [is_within(hour, (22, 6)) for hour in (21.9, 22, 0, 5.9, 6)] == [False, True, True, True, False]
    assert [is_within(hour, (8, 8)) for hour in (0, 8, 23.9)] == [True] * 3


def test_whose_turn_it_is_was_drawn_for_each_client_from_the_first_round_on():
    schedule, rounds = Schedule(10, ((0.2, 1), (0.5, 1)), (2, 9)), range(1, 11)
    came = {client: [index for index in rounds if client in schedule(index, 2, seed=3)] for client in (0, 1)}
    for client, number in ((0, 2), (1, 5)):
        drawn = generator(3, "schedule", client).permutation(10)[:number]
        assert came[client] == sorted(1 + drawn)
        epochs = int(generator(3, "epochs", client).integers(2, 10))
        assert {schedule(index, 2, seed=3)[client] for index in came[client]} == {epochs}
