"""Collecting: who is drawn in which round, with which epochs and learning rate, and how long a server waits."""

from collections import Counter

import pytest
from helpers import SoftmaxLearner, small_task
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmerit import fedavg, federate
from fedmerit.core.collect.collect import Uniform, draw
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.lr_schedules import cosine_factor
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError


def test_how_many_are_drawn():
    """A share is rounded and at least one."""
    assert [len(draw(share, 10, 0, "x", 1)) for share in (0.01, 0.24, 0.26, 1.0)] == [1, 2, 3, 10]
    assert draw(0.5, 10, 0, "x", 1) == tuple(sorted(draw(0.5, 10, 0, "x", 1)))


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


PAPER = ((0.2, 6), (0.5, 6), (1.0, 8))
rates = st.lists(st.tuples(st.floats(0.05, 1.0), st.integers(1, 4)), min_size=1, max_size=3).map(tuple)


def test_learning_rates_by_hand():
    assert [cosine_factor(index, 4) for index in range(1, 5)] == pytest.approx([1, 0.8535534, 0.5, 0.1464466])
    with pytest.raises(ConfigError, match="unknown here"):
        cosine_factor(1, None)


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
    assert schedule(1, 40, 7) != schedule(2, 40, 7)
    assert schedule(1, 40, 7) != schedule(1, 40, 8)


def test_turns_and_epochs_are_drawn_once_for_each_client():
    schedule, rounds = Schedule(10, ((0.2, 1), (0.5, 1)), (2, 9)), range(1, 11)
    came = {client: [index for index in rounds if client in schedule(index, 2, seed=3)] for client in (0, 1)}
    for client, number in ((0, 2), (1, 5)):
        drawn = generator(3, "schedule", client).permutation(10)[:number]
        assert came[client] == sorted(1 + drawn)
        epochs = int(generator(3, "epochs", client).integers(2, 10))
        assert {schedule(index, 2, seed=3)[client] for index in came[client]} == {epochs}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *[({"rates": wrong}, "rate") for wrong in ((), ((0.0, 1),), ((1.1, 1),), ((0.5, 0),))],
        *[({"epochs": wrong}, "epochs") for wrong in ((0, 3), (3, 1))],
    ],
)
def test_bad_schedules_are_refused(settings: dict[str, object], says: str):
    with pytest.raises(ConfigError, match=says):
        Schedule(10, **settings)  # type: ignore[arg-type]
