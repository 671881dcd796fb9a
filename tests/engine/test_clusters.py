"""Cluster models [IFCA]: planted groups, bytes, resumed runs, refusals."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import run_rounds
from helpers import ProbabilisticSoftmax, small_task

from fedmerit import InTime, Momentum, Recipe, Run, Server, Task, fedavg, federate, ifca, load_task
from fedmerit.core.host import Host
from fedmerit.core.models.clusters import NO_ANSWER, best_models, models_in
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.server.aggregators import CoordinateMedian
from fedmerit.core.state import State
from fedmerit.core.types import Evaluation
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower import Merit

CLIENTS = 6


def played(task: Task, recipe: Recipe, rounds: int = 3, **settings: Any) -> Run:
    return federate(task, recipe, rounds=rounds, fraction=1.0, seed=1, **settings)


@pytest.fixture(scope="module")
def task() -> Task:
    """Digits, of which the clients with odd numbers call 0 a 5, 1 a 6 and so on."""
    train = {"lr": 0.3, "epochs": 2, "batch": 20}
    made = load_task("digits", clients=CLIENTS, partition="iid", test="matched", train=train)

    def turned(split: Any) -> Any:
        odd = np.repeat(np.arange(CLIENTS) % 2, split.sizes) == 1
        return replace(split, y=np.where(odd, (split.y + 5) % 10, split.y))

    data = made.federation
    return Task(replace(data, train=turned(data.train), test=turned(data.test)), made.learner)


def test_one_cluster_is_fedavg(task: Task):
    common, one = played(task, fedavg()), played(task, ifca(1))
    assert common.model.tobytes() == one.model.tobytes()
    assert np.array_equal(common.local_accuracy, one.local_accuracy)


def test_planted_groups_are_found_and_serve_their_clients(task: Task, tmp_path: Path):
    run = played(task, ifca(2, warmup_rounds=1), rounds=8, out=tmp_path / "run")
    assert [one.group for one in run.explain(8)] == [0, 1] * (CLIENTS // 2)
    assert [round(sum(one.weight for one in run.explain(8) if one.group == group), 9) for group in (0, 1)] == [1, 1]
    assert run.accuracy > played(task, fedavg(), rounds=8).accuracy + 0.3
    without = played(task, ifca(2), rounds=8)
    assert {one.group for one in without.explain(8)} == {0}, "all chose the same, as the paper lets them"
    assert {path.name for path in (tmp_path / "run" / "clusters").iterdir()} == {"0.safetensors", "1.safetensors"}
    with pytest.raises(ConfigError, match="this run has 2 cluster models"):
        run.estimator()


def test_asking_which_model_fits_counts_among_the_bytes(task: Task):
    with LocalFleet(task) as fleet:
        states, records = run_rounds(fleet, ifca(3, warmup_rounds=1), 2, seed=5)
    assert [record.bytes_down / CLIENTS / states[0].model.nbytes for record in records] == [1, 3 + 1]


def first_state(recipe: Recipe, host: Host) -> State:
    return initial_state(recipe, host, host.first_model(1), 5)[0]  # type: ignore[misc]


def test_a_model_that_nobody_chose_stays_and_optimizers_keep_a_state_per_model(task: Task):
    recipe = replace(ifca(2), server=Server(optimizer=Momentum(0.5)))
    with LocalFleet(task) as fleet:
        host = Host.of(fleet)
        state = first_state(recipe, host)
        chosen = best_models(models_in(state), fleet, range(CLIENTS)).model_of
        picked = [client for client in range(CLIENTS) if chosen[client] == chosen[0]]
        after, _ = run_round(state, recipe, host, InTime(lambda *_: dict.fromkeys(picked)), 5, evaluate=False)
    pairs = zip(models_in(state), models_in(after), strict=True)
    assert [one.tobytes() != two.tobytes() for one, two in pairs] == [place == chosen[0] for place in (0, 1)]
    assert list(after.own["server"]) == [str(chosen[0])]


def test_groups_take_the_recipes_aggregate(task: Task):
    mean, median = played(task, ifca(2), 1), played(task, replace(ifca(2), server=Server(CoordinateMedian())), 1)
    assert mean.model.tobytes() != median.model.tobytes()


@dataclass(frozen=True)
class Mute:
    """A fleet in which client 2 answers nothing about models."""

    fleet: LocalFleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def evaluate(self, *what: Any, **how: Any) -> list[Evaluation]:
        there = (np.arange(CLIENTS) != 2).astype(np.int64)
        return [replace(one, sizes=one.sizes * there) for one in self.fleet.evaluate(*what, **how)]


def test_a_client_that_does_not_report_its_model_is_dropped(task: Task):
    with LocalFleet(task) as fleet:
        _, (record,) = run_rounds(Mute(fleet), ifca(2), 1, seed=5)  # type: ignore[arg-type]
    assert 2 not in record.ids
    assert NO_ANSWER in record.dropped[2]


def test_clients_are_tested_on_the_model_that_each_chose(task: Task):
    """One that cannot choose, on the first; objectives are those of the server's models, not of personal ones."""
    accuracy = (find_objective("accuracy"),)
    recipe = ifca(2)
    with LocalFleet(task) as fleet:
        state = first_state(recipe, Host.of(fleet))
        each = fleet.evaluate(models_in(state))
        audits = [fleet.audit(model, accuracy, personal=False) for model in models_in(state)]
        chosen = dict(best_models(models_in(state), fleet, range(CLIENTS)).model_of)
        nobody = InTime(lambda *_: {})
        for place, clients in enumerate((fleet, Mute(fleet))):
            host = Host.of(clients)  # type: ignore[arg-type]
            _, record = run_round(state, recipe, host, nobody, 5, True, accuracy)
            taken = chosen | ({2: 0} if place else {})
            assert record.evaluation.correct.tolist() == [each[taken[who]].correct[who] for who in range(CLIENTS)]
            assert record.audit == {who: audits[taken[who]][who] for who in range(CLIENTS)}
    assert set(chosen.values()) == {0, 1}
    assert each[0].correct[2] != each[1].correct[2]


def test_what_cannot_choose_is_refused_before_a_run():
    with pytest.raises(ConfigError, match="predict_proba"):
        federate(small_task(), ifca(), rounds=1)
    with pytest.raises(ConfigError, match="one model that all clients share"):
        Merit(ifca())
    made = small_task(learner=ProbabilisticSoftmax())
    data = replace(made.federation, validation=made.federation.test)
    with pytest.raises(ConfigError, match="stop"):
        federate(Task(data, made.learner), ifca(), rounds=1, stop=lambda _: False)
