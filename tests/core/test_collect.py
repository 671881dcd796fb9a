"""Collecting: how many clients are drawn, and what reaches the learner and the ledger of a selection."""

from __future__ import annotations

from helpers import SoftmaxLearner, small_task

from fedmerit import fedavg, federate
from fedmerit.core.collect.collect import Poisson, Uniform, draw
from fedmerit.core.collect.schedules import Schedule


def test_how_many_are_drawn():
    """A share is rounded and at least one; `overselect` asks for more, rounded up, and never for more than all."""
    assert [len(draw(share, 10, 0, "x", 1)) for share in (0.01, 0.24, 0.26, 1.0)] == [1, 2, 3, 10]
    assert [len(draw(0.3, 10, 0, "x", 1, more)) for more in (1.0, 1.1, 2.0, 9.0)] == [3, 4, 6, 10]
    assert draw(0.5, 10, 0, "x", 1) == tuple(sorted(draw(0.5, 10, 0, "x", 1)))
    assert len(Uniform(0.3, overselect=4 / 3)(1, 10, 0)) == 4, "4 / 3 of 3 is 4, whatever the rounding"


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


def test_a_poisson_draw_is_that_of_the_seed_unless_it_is_secret():
    plain, secret = Poisson(0.5), Poisson(0.5, secret=True)
    assert plain(1, 64, 3) == plain(1, 64, 3)
    assert secret(1, 64, 3) != secret(1, 64, 3), "equal with a chance of 2 ** -64"
