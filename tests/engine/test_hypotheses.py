"""Several models at the server, of which clients choose [IFCA]: planted groups, bytes, resumed runs, refusals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ProbabilisticSoftmax, contents, small_task, stopped_and_resumed

from fedmerit import (
    Momentum,
    Recipe,
    Run,
    Task,
    cgsv,
    device_aware,
    fedavg,
    federate,
    fedval,
    ifca,
    load_config,
    load_task,
    run_config,
)
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.robust import Alignment
from fedmerit.core.models.choices import UNANSWERED, choose, evaluate_chosen, models_in, with_hypotheses
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.local import Beside
from fedmerit.core.objectives import find_objective
from fedmerit.core.round import play
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


def test_one_hypothesis_is_the_recipe_without(task: Task):
    common, one = played(task, fedavg()), played(task, ifca(1))
    assert common.model.tobytes() == one.model.tobytes()
    assert np.array_equal(common.local_accuracy, one.local_accuracy)


def test_planted_groups_are_found_and_serve_their_clients(task: Task, tmp_path: Path):
    run = played(task, ifca(2), rounds=8, out=tmp_path / "run")
    assert [one.group for one in run.explain(8)] == [0, 1] * (CLIENTS // 2)
    assert [round(sum(one.weight for one in run.explain(8) if one.group == group), 9) for group in (0, 1)] == [1, 1]
    assert run.accuracy > played(task, fedavg(), rounds=8).accuracy + 0.3
    assert {one.group for one in played(task, ifca(2, dealt=0), rounds=8).explain(8)} == {0}  # all chose the same
    assert {path.name for path in (tmp_path / "run" / "hypotheses").iterdir()} == {"0.safetensors", "1.safetensors"}
    with pytest.raises(ConfigError, match="this run has 2 models"):
        run.predict(task.federation.test.x[:1])


def test_asking_which_model_fits_counts_among_the_bytes(task: Task):
    with LocalFleet(task) as fleet:
        state, sent = State(fleet.server.first_model(1)), []
        for _ in range(2):
            state, record = play(state, ifca(3, dealt=1), fleet, selection=Uniform(1.0), seed=5, evaluate=False)
            sent.append(record.bytes_down / CLIENTS / state.model.nbytes)
    assert sent == [1, 3 + 1]


def test_a_model_that_nobody_chose_stays_and_steps_remember_each_apart(task: Task):
    recipe = replace(ifca(2, dealt=0), step=Momentum(0.5))
    with LocalFleet(task) as fleet:
        state = with_hypotheses(recipe, State(fleet.server.first_model(1)), fleet.server, 5)
        before = models_in(state)
        taken = choose(state, fleet, range(CLIENTS))
        picked = [client for client in range(CLIENTS) if taken.places[client] == taken.places[0]]
        after, _ = play(state, recipe, fleet, selection=lambda *_: dict.fromkeys(picked), seed=5, evaluate=False)
    moved = [one.tobytes() != two.tobytes() for one, two in zip(before, models_in(after), strict=True)]
    assert moved == [place == taken.places[0] for place in (0, 1)]
    assert sum("momentum" in name for name in after.parts) == 1


def test_groups_take_the_recipes_aggregate(task: Task):
    mean, median = played(task, ifca(2), 1), played(task, replace(ifca(2), aggregate=CoordinateMedian()), 1)
    assert mean.model.tobytes() != median.model.tobytes()


def test_workers_do_not_change_the_bits():
    task = small_task(learner=ProbabilisticSoftmax())
    one, two = played(task, ifca(2), 2), played(task, ifca(2), 2, workers=2)
    assert one.model.tobytes() == two.model.tobytes()
    assert np.array_equal(one.local_accuracy, two.local_accuracy)


def test_a_resumed_run_has_all_models_to_the_bit(tmp_path: Path):
    settings = ["task.clients=4", "run.rounds=4", "run.workers=1", "recipe.name=ifca", "recipe.models=3"]
    config = load_config(None, [*settings, "recipe.step=momentum"])
    run_config(config, tmp_path / "whole")
    stopped_and_resumed(config, tmp_path / "stopped")
    whole, stopped = (contents(tmp_path / name / "hypotheses") for name in ("whole", "stopped"))
    assert len(whole) == 3
    assert whole == stopped


@dataclass(frozen=True)
class Mute:
    """A fleet in which client 2 answers nothing about models."""

    fleet: LocalFleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def evaluate(self, *what: Any, **how: Any) -> list[Evaluation]:
        there = (np.arange(CLIENTS) != 2).astype(np.int64)
        return [replace(one, sizes=one.sizes * there) for one in self.fleet.evaluate(*what, **how)]


def test_who_does_not_say_which_model_fits_is_left_out(task: Task):
    with LocalFleet(task) as fleet:
        state = State(fleet.server.first_model(1))
        _, record = play(state, ifca(2, dealt=0), Mute(fleet), selection=Uniform(1.0), seed=5, evaluate=False)  # type: ignore[arg-type]
    assert 2 not in record.ids
    assert UNANSWERED in record.left_out[2]


def test_objectives_are_measured_on_the_model_that_each_chose(task: Task):
    accuracy = (find_objective("accuracy"),)
    with LocalFleet(task) as fleet:
        state = with_hypotheses(ifca(2), State(fleet.server.first_model(1)), fleet.server, 5)
        chosen = choose(state, fleet, range(CLIENTS)).places
        found, audited = evaluate_chosen(state, fleet, accuracy)
        each = [fleet.audit(model, accuracy, personal=False) for model in models_in(state)]
        _, record = play(state, ifca(2), fleet, selection=Uniform(1.0), seed=5, evaluate=True, objectives=accuracy)
    assert set(chosen.values()) == {0, 1}
    assert audited == {client: each[chosen[client]][client] for client in range(CLIENTS)}
    assert [audited[client]["accuracy"] for client in range(CLIENTS)] == pytest.approx(found.local)
    assert set(record.audit) == set(range(CLIENTS))


def test_who_cannot_choose_is_tested_on_the_first_model(task: Task):
    asked = []

    class Listening(Mute):
        def audit(self, model: Any, objectives: Any, *, personal: bool) -> Any:
            asked.append(personal)
            return self.fleet.audit(model, objectives, personal=personal)

    with LocalFleet(task) as fleet:
        state = with_hypotheses(ifca(2), State(fleet.server.first_model(1)), fleet.server, 5)
        each = fleet.evaluate(models_in(state))
        found, audited = evaluate_chosen(state, Listening(fleet), (find_objective("accuracy"),))  # type: ignore[arg-type]
    assert each[0].correct[2] != each[1].correct[2]
    assert found.correct[2] == each[0].correct[2]
    assert audited[2]["accuracy"] == pytest.approx(each[0].local[2])
    assert asked == [False, False], "the server's models, not those that clients keep"


def test_with_one_model_all_are_tested_on_it(task: Task):
    with LocalFleet(task) as fleet:
        model = fleet.server.first_model(1)
        found, audited = evaluate_chosen(State(model), fleet, ())
        plain = fleet.evaluate([model])[0]
    assert (found.correct.tolist(), found.sizes.tolist()) == (plain.correct.tolist(), plain.sizes.tolist())
    assert audited == {}


@pytest.mark.parametrize(
    ("recipe", "changed", "named"),
    [
        (cgsv(), {}, "personal models"),
        (fedavg(), {"beside": Beside()}, "models beside"),
        (fedval("accuracy"), {}, "validated criteria"),
        (device_aware("DS", "LD"), {}, "a search"),
        (fedavg(), {"initial": 0.5}, "an initial phase"),
        (fedavg(), {"criteria": (Alignment(),)}, "Alignment"),
        (fedavg(), {"contributions": (Contribution("shapley"),)}, "contributions but `cosine`"),
    ],
)
def test_what_is_of_one_model_is_refused(recipe: Recipe, changed: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=named):
        replace(recipe, hypotheses=Hypotheses(2), **changed)


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_models_and_rounds_are_whole_numbers(wrong: Any):
    for settings in ({"count": wrong}, {"count": 0}, {"dealt": wrong}):
        with pytest.raises(ConfigError, match="whole number from"):
            Hypotheses(**settings)


def test_what_cannot_choose_is_refused_before_a_run():
    with pytest.raises(ConfigError, match="predict_proba"):
        federate(small_task(), ifca(), rounds=1)
    with pytest.raises(ConfigError, match="several"):
        Merit(ifca())
    made = small_task(learner=ProbabilisticSoftmax())
    data = replace(made.federation, validation=made.federation.test)
    with pytest.raises(ConfigError, match="stopping early goes by one model"):
        federate(Task(data, made.learner), ifca(), rounds=1, stop=lambda _: False)
