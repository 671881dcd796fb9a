"""SCAFFOLD and FedDyn by hand and on every fleet; the learning rate of a round; what goes with neither is refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controlled import Bare, many_goals, task
from fleets import on_flower, run_rounds
from flwr.app import Message

from fedmerit import DS, LD, Momentum, Server, Task, Uniform, device_aware, fedavg, federate, load_config, load_task
from fedmerit.core.server.controls import Control, FedDyn, Scaffold
from fedmerit.core.state import Record, State
from fedmerit.errors import ConfigError
from fedmerit.fleet.client import Job, train_clients
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower.messages import pack
from fedmerit.tasks.registry import make_task

TWO = np.array([[0.0], [6.0]], np.float32)


def rounds(made: Task, number: int, workers: int = 1, fraction: float = 1.0) -> tuple[list[State], list[Record]]:
    with LocalFleet(made, workers) as fleet:
        return played(fleet, number, fraction)


def played(fleet: Any, number: int, fraction: float = 1.0) -> tuple[list[State], list[Record]]:
    return run_rounds(fleet, fedavg(), number, Uniform(fraction))


def leaves(own: Any, path: str = "") -> dict[str, Any]:
    """The vectors of a state by their paths."""
    if not isinstance(own, Mapping):
        return {path: own}
    return {name: one for key, kept in own.items() for name, one in leaves(kept, f"{path}/{key}").items()}


def test_scaffold_is_algorithm_1():
    """Karimireddy et al. 2020, option II; four of eight clients take part in a round."""
    goals, lr, steps = many_goals(), 0.5, 2
    states, records = rounds(task(goals, control=Scaffold(), lr=lr, steps=steps), 4, fraction=0.5)
    x, c, own = np.full(40, 2.0), np.zeros(40), np.zeros((8, 40))
    for state, record in zip(states, records, strict=True):
        moves, changes = [], []
        for i in record.ids:
            y = x
            for _ in range(steps):
                y = y - lr * (y - goals[i] - own[i] + c)
            after = own[i] - c + (x - y) / (steps * lr)
            moves.append(y - x)
            changes.append(after - own[i])
            own[i] = after
        x, c = x + np.mean(moves, axis=0), c + len(record.ids) / 8 * np.mean(changes, axis=0)
        np.testing.assert_allclose(state.model, x, atol=1e-5)


def test_feddyn_is_algorithm_1():
    """Acar et al. 2021: the client's minimum is approximated by gradient steps; four of eight clients take part."""
    goals, lr, steps, alpha = many_goals(), 0.5, 2, 0.3
    states, records = rounds(task(goals, control=FedDyn(alpha), lr=lr, steps=steps), 4, fraction=0.5)
    x, h, slopes = np.full(40, 2.0), np.zeros(40), np.zeros((8, 40))
    for state, record in zip(states, records, strict=True):
        trained = []
        for i in record.ids:
            y = x
            for _ in range(steps):
                y = y - lr * (y - goals[i] - slopes[i] + alpha * (y - x))
            slopes[i] = slopes[i] - alpha * (y - x)
            trained.append(y)
        h = h - alpha / 8 * sum(y - x for y in trained)
        x = np.mean(trained, axis=0) - h / alpha
        np.testing.assert_allclose(state.model, x, atol=1e-5)


def test_both_come_to_rest_whoever_takes_part():
    """Two of three clients a round: FedAvg goes where those want to that came, both corrections to the mean of all."""
    goals = np.array([[0.0], [6.0], [6.0]], np.float32)

    def last(control: Control | None) -> list[float]:
        states, _ = rounds(task(goals, control=control, steps=10, lr=0.2), 60, fraction=0.7)
        return [state.model.item() for state in states[-10:]]

    assert np.ptp(last(None)) > 2
    for control in (Scaffold(), FedDyn(0.5)):
        assert last(control) == pytest.approx([4.0] * 10, abs=0.05)


@pytest.mark.parametrize("control", [Scaffold(), FedDyn(0.3)], ids=lambda control: control.name)
def test_the_same_bits_for_1_2_4_workers_after_a_kill_and_on_flower(control: Control, tmp_path: Path):
    goals = many_goals()
    (*_, one), _ = rounds(task(goals, control=control), 5, fraction=0.5)
    others = [rounds(task(goals, control=control), 5, workers, 0.5)[0][-1] for workers in (2, 4)]
    flag = tmp_path / "died"
    others.append(rounds(task(goals, control=control, die_once=flag), 5, 2, 0.5)[0][-1])
    assert flag.exists()
    others.append(played(on_flower(task(goals, control=control)), 5, 0.5)[0][-1])
    for other in others:
        assert other.model.tobytes() == one.model.tobytes()
        assert {name: part.tobytes() for name, part in leaves(other.own).items()} == {
            name: part.tobytes() for name, part in leaves(one.own).items()
        }


def test_a_vector_beside_the_update_is_checked_too():
    fleet = on_flower(task(TWO, control=Scaffold()))
    deliver = fleet.grid.deliver  # type: ignore[attr-defined]

    def lie(message: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == 1001:
            vectors = {"update": np.ones(1, np.float32), "vector:slope": np.full(1, np.nan, np.float32)}
            return Message(pack(vectors, {"personal": 0}, {"samples": 1.0}), reply_to=message)
        return deliver(message)

    fleet.grid.deliver = lie  # type: ignore[attr-defined, method-assign]
    (state,), (record,) = played(fleet, 1)
    assert "slope contains NaN" in record.dropped[1]
    control = state.own["server"]["control"]
    assert np.isfinite(control["shared"]).all()
    assert list(control["clients"]) == ["0"]


def test_the_server_says_the_learning_rate_of_a_round():
    """Goal 6, start 0, one step: lr 1/4, then 1/2 of the rest, then 3/4."""
    made = task(TWO[1:], lr=1.0, steps=1, begin=0.0, schedule=lambda index, rounds: index / 4)
    here, _ = rounds(made, 3)
    assert [state.model.item() for state in here] == [1.5, 3.75, 5.4375]
    there, _ = played(on_flower(made), 3)
    assert [state.model.item() for state in there] == [1.5, 3.75, 5.4375]


def test_clients_of_one_group_may_have_unlike_learning_rates():
    made = task(TWO[1:], steps=1)
    jobs = [Job(np.zeros(1, np.float32), made.federation.samples(0), 0, lr=lr) for lr in (None, 0.25)]
    assert [answer.update.item() for answer in train_clients(made.learner, jobs, ())] == [3.0, 1.5]


def test_a_learner_without_the_methods_is_refused_by_name():
    for setting, method in (("train.schedule=cosine", "at_rate"), ("train.algorithm=scaffold", "control")):
        with pytest.raises(ConfigError, match=method):
            make_task(load_config(None, ["task.data=controlled:BARE", setting]))
    job = Job(np.zeros(40, np.float32), task(many_goals()).federation.samples(0), 0, lr=0.5)
    with pytest.raises(ValueError, match="at_rate"):
        train_clients(Bare(), [job], ())


def test_scaffold_goes_with_a_step_and_a_search():
    made = load_task("digits", clients=4, validation=0.1, train={"algorithm": "scaffold", "epochs": 1})
    for recipe in (replace(fedavg(), server=Server(optimizer=Momentum())), device_aware(DS, LD)):
        assert federate(made, recipe, rounds=2, fraction=1.0).accuracy > 0.1
