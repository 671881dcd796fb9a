"""FedVal on real clients: the server's scores become weights, audits are kept, mistakes are named at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line, stopped_and_resumed

from fedmerit import (
    DS,
    Federation,
    Recipe,
    Run,
    Samples,
    Split,
    Task,
    Validated,
    agnostic,
    fedavg,
    federate,
    fedval,
    m2f,
    prioritized,
    qffl,
    run_config,
)
from fedmerit.config.schema import make_config
from fedmerit.core.criteria.loss import project_to_simplex
from fedmerit.core.objectives import find_objective
from fedmerit.errors import ConfigError, DataError, UserError
from fedmerit.learn.models import dense
from fedmerit.learn.sgd import TorchLearner
from fedmerit.tasks.attackers import plant
from fedmerit.tasks.registry import TaskSpec

FEATURES, CLIENTS = 5, 6


def rows(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Two classes and two groups; the second feature is the group, the first decides."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(number, FEATURES)).astype(np.float32)
    sex = random.integers(0, 2, number).astype(np.uint8)
    x[:, 1] = sex
    return (
        x,
        (x[:, 0] + 0.3 * random.normal(size=number) > 0).astype(np.int64),
        {"sex": sex, "one": np.zeros(number, np.uint8)},
    )


def split(each: int, seed: int) -> Split:
    x, y, attributes = rows(each * CLIENTS, seed)
    return Split(x, y, np.arange(CLIENTS + 1) * each, attributes)


def build() -> Any:
    return dense(FEATURES, 24, 2)


def federation(server: int = 80) -> Federation:
    kept = Samples(*_samples(server)) if server else None
    names = tuple(f"client {i}" for i in range(CLIENTS))
    return Federation(names, split(40, 1), split(20, 2), 2, server=kept)


def _samples(number: int) -> tuple[np.ndarray, np.ndarray, int, dict[str, np.ndarray]]:
    x, y, attributes = rows(number, 3)
    return x, y, 2, attributes


def task(server: int = 80, poisoned: float = 0.0) -> Task:
    made = plant(federation(server), {"poisoned": poisoned}, "sex", 0) if poisoned else federation(server)
    return Task(made, TorchLearner(build, make_config({"train": {"lr": 0.5, "epochs": 12, "batch": 10}}).train))


def load(config: Any, seed: int) -> Federation:
    return federation()


def learner(model: str, train: Any) -> TorchLearner:
    return TorchLearner(build, train)


TINY = TaskSpec("tiny", "for tests", load, ("tiny",), learner=learner)


@pytest.mark.parametrize("rho", [0.5, 1.0, "1/K"])
def test_weights_are_the_servers_scores_of_the_merged_models(rho: Any):
    """Everything once more by hand: train, merge, predict, score."""
    from fedmerit.core.seeds import derive

    made = task()
    run = federate(made, fedval("accuracy", "parity:sex", gamma=(3, 1), rho=rho), rounds=1, fraction=1.0, seed=5)
    start, server = made.learner.start(derive(5, "model")), made.federation.server
    assert server is not None
    scores = []
    for client in range(CLIENTS):
        trained = made.learner.train(start, made.federation.samples(client), derive(5, "train", 1, client))
        part = 1 / CLIENTS if rho == "1/K" else rho
        predicted = made.learner.predict((start + np.float32(part) * (trained - start)).astype(np.float32), server.x)
        right = (predicted == server.y).mean()
        rates = [(predicted[server.attributes["sex"] == group] == 1).mean() for group in (0, 1)]
        scores.append(0.75 * right + 0.25 * (1 - abs(rates[0] - rates[1])))
    assert [one.weight for one in run.explain(1)] == pytest.approx(np.array(scores) / sum(scores), rel=1e-6)
    assert [one.score for one in run.explain(1)] == pytest.approx(scores, rel=1e-6)


def test_poisoned_clients_get_less_when_ranked_on_their_own_models():
    made = task(poisoned=0.5)
    recipe = fedval("accuracy", rank="squared", rho=1.0)
    bad = [place for place, name in enumerate(made.federation.names) if "poisoned" in name]
    assert len(bad) == 3

    def share(recipe: Recipe) -> float:
        run = federate(made, recipe, rounds=3, fraction=1.0)
        return sum(one.weight for one in run.explain(3) if one.id in bad)

    assert share(fedavg()) == pytest.approx(0.5)
    assert share(recipe) < 0.25
    assert share(fedval("accuracy", rho=1.0)) < 0.5


def test_an_objective_is_a_criterion_like_any_other():
    """Parity before size; and a search over such orders."""
    from fedmerit import device_aware
    from fedmerit.core.search.backtracking import Backtracking

    parity = Validated(find_objective("parity:sex"))
    run = federate(task(), prioritized(parity, DS, normalise="max"), rounds=2, fraction=1.0)
    one = run.explain(2)[0]
    assert set(one.criteria) == {"validated:parity:sex", "DS"}
    assert one.facts["validated:parity:sex"] == one.criteria["validated:parity:sex"]
    made = task()
    searched = Task(replace(made.federation, validation=made.federation.test), made.learner)
    recipe = device_aware(parity, DS, normalise="max", search=Backtracking(tolerance=0.0))
    run = federate(searched, recipe, rounds=2, fraction=1.0)
    assert len(run.ledger.candidates(1)) == 2


def test_a_gate_shuts_out_models_that_are_no_good():
    gated = Validated(find_objective("parity:sex"), min_accuracy=1.0)
    run = federate(task(), Recipe((gated,), normalise="none", when_zero="uniform"), rounds=1, fraction=1.0)
    assert {one.score for one in run.explain(1)} == {0.0}
    assert [one.weight for one in run.explain(1)] == pytest.approx([1 / CLIENTS] * CLIENTS)


def test_what_a_gate_shuts_out_is_kept_as_it_was_measured():
    open_ = federate(task(), fedval("accuracy", "parity:sex"), rounds=1, fraction=1.0).explain(1)
    middle = float(np.median([one.facts["validated:accuracy"] for one in open_]))
    gated = [Validated(find_objective(name), min_accuracy=middle) for name in ("accuracy", "parity:sex")]
    shut = federate(task(), replace(fedval("accuracy", "parity:sex"), criteria=tuple(gated)), rounds=1, fraction=1.0)
    assert [one.facts for one in shut.explain(1)] == [one.facts for one in open_]
    for one in shut.explain(1):
        passed = one.facts["validated:accuracy"] >= middle
        assert one.criteria == {name: one.facts[name] * passed for name in one.criteria}
    assert {one.weight > 0 for one in shut.explain(1)} == {True, False}
    out = next(one for one in shut.explain(1) if not one.weight)
    told = shut.why(client=out.id)
    assert f"counts as 0 instead of {out.facts['validated:parity:sex']:.5g}" in told
    assert f"is below the gate of {middle:g}" in told
    assert "without the gate" in told


def test_a_gate_brings_the_accuracy_that_it_asks_for():
    parity = Validated(find_objective("parity:sex"), min_accuracy=1.0)
    assert parity.required_facts == ("validated:parity:sex", "validated:accuracy")
    one = federate(task(), Recipe((parity, DS), normalise="max"), rounds=1, fraction=1.0).explain(1)[0]
    assert 0 < one.facts["validated:accuracy"] < 1
    assert one.facts["validated:parity:sex"] > 0
    assert one.criteria["validated:parity:sex"] == 0


def test_an_objective_that_nobody_can_tell_is_left_out_and_said():
    made = task()
    server = made.federation.server
    assert server is not None
    barren = Samples(server.x, np.where(server.attributes["sex"] == 0, 0, server.y), 2, server.attributes)
    blind = Task(replace(made.federation, server=barren), made.learner)
    both = federate(blind, fedval("accuracy", "opportunity:sex"), rounds=1, fraction=1.0)
    alone = federate(blind, fedval("accuracy"), rounds=1, fraction=1.0)
    assert [one.weight for one in both.explain(1)] == pytest.approx([one.weight for one in alone.explain(1)])
    assert [event.kind for event in both.events()].count("undefined-objective") == 1


def test_workers_do_not_matter():
    names = ("accuracy", "loss", "odds:sex", "calibration:sex")
    recipe, settings = fedval(*names, rank="borda"), {"rounds": 3, "seed": 2, "fraction": 1.0, "audit": names}
    runs = [federate(task(), recipe, workers=workers, **settings) for workers in (1, 3)]  # type: ignore[arg-type]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()
    assert runs[0].ledger.audits() == runs[1].ledger.audits()


def test_audits_are_what_the_objectives_say():
    made = task()
    run = federate(made, fedavg(), rounds=4, fraction=1.0, evaluate_every=2, audit=("accuracy", "parity:sex"))
    assert sorted({round for round, *_ in run.ledger.audits()}) == [2, 4]
    found = {(client, name): value for _, client, name, value in run.ledger.audits(4)}
    assert len(found) == 2 * (CLIENTS + 1)
    server, test = made.federation.server, made.federation.test
    assert server is not None
    assert found[-1, "accuracy"] == pytest.approx((made.learner.predict(run.model, server.x) == server.y).mean())
    for client in range(CLIENTS):
        assert found[client, "accuracy"] == pytest.approx(run.local_accuracy[-1, client])
        predicted = made.learner.predict(run.model, test.x[test.rows(client)])
        sex = test.attributes["sex"][test.rows(client)]
        rates = [predicted[sex == group].mean() for group in (0, 1)]
        assert found[client, "parity:sex"] == pytest.approx(1 - abs(rates[0] - rates[1]))


def test_audits_need_no_server_and_know_own_models():
    made = task(server=0)
    run = federate(made, fedavg(), rounds=1, fraction=1.0, audit=("worst_group:sex",))
    assert sorted(client for _, client, _, _ in run.ledger.audits(1)) == list(range(CLIENTS))
    own = Task(replace(made.federation, validation=made.federation.test), made.learner)
    run = federate(own, m2f(DS, initial=0.0), rounds=2, fraction=1.0, audit=("accuracy",))
    values = [value for _, client, _, value in run.ledger.audits(2) if client >= 0]
    assert values == pytest.approx(run.local_accuracy[-1].tolist())


def test_who_fares_worst_counts_more():
    made = task(poisoned=0.2)
    (bad,) = [place for place, name in enumerate(made.federation.names) if "poisoned" in name]
    for recipe in (qffl(2.0), agnostic(0.5)):
        run = federate(made, recipe, rounds=40, fraction=1.0)
        weights = [one.weight for one in run.explain(40)]
        assert weights.index(max(weights)) == bad
        losses = [one.facts["loss"] for one in run.explain(40)]
        assert losses.index(max(losses)) == bad
    even = federate(made, qffl(0.0), rounds=1, fraction=1.0)
    assert [one.weight for one in even.explain(1)] == pytest.approx([1 / CLIENTS] * CLIENTS)


def test_agnostic_weights_by_hand_and_through_a_resume(tmp_path: Path):
    config = make_config(
        {
            "task": {"data": "test_fedval:TINY"},
            "train": {"lr": 0.5, "batch": 10},
            "recipe": {"name": "agnostic", "criteria": [{"name": "Agnostic", "eta": 0.7}]},
            "run": {"rounds": 5, "fraction": 1.0, "workers": 1},
        }
    )
    whole = run_config(config, tmp_path / "whole")
    mixture = np.full(CLIENTS, 1 / CLIENTS)
    for round in range(1, 6):
        assert [one.weight for one in whole.explain(round)] == pytest.approx(mixture)
        losses = np.array([one.facts["loss"] for one in whole.explain(round)])
        mixture = project_to_simplex(mixture + 0.7 * losses)
    assert stopped_and_resumed(config, tmp_path / "stopped", 3).model.tobytes() == whole.model.tobytes()


@pytest.mark.parametrize(
    ("recipe", "audit", "server", "says"),
    [
        (lambda: fedval("accuracy"), (), 0, r"task\.server"),
        (lambda: fedval("parity:race"), (), 80, "no attribute 'race'"),
        (lambda: fedval("parity:one"), (), 80, "all of one"),
        (fedavg, ("parity:race",), 80, "no attribute 'race'"),
        (fedavg, ("parity:race",), 0, "no attribute 'race'"),
        (fedavg, ("fairness",), 80, "objective"),
    ],
)
def test_what_the_server_cannot_measure(recipe: Any, audit: tuple[str, ...], server: int, says: str):
    with pytest.raises(UserError, match=says):
        federate(task(server), recipe(), rounds=1, fraction=1.0, audit=audit)


def test_two_classes_are_needed_from_the_start():
    from fedmerit import load_task

    digits = load_task("digits", server=100)
    with pytest.raises(DataError, match=r"no attribute|two classes"):
        federate(digits, fedval("parity:sex"), rounds=1)
    made = digits.federation
    assert made.server is not None
    sexed = replace(made, server=replace(made.server, attributes={"sex": np.arange(100) % 2}))
    with pytest.raises(DataError, match="need two classes"):
        federate(Task(sexed, digits.learner), fedval("parity:sex"), rounds=1)
    assert federate(digits, fedval("accuracy", "loss"), rounds=1).accuracy > 0


@pytest.mark.parametrize("gamma", [(0, 0), (-1, 2), (float("nan"), 1), (1,), (1, 1, 1)])
def test_gamma_is_checked(gamma: tuple[float, ...]):
    with pytest.raises(ConfigError, match="gamma"):
        fedval("accuracy", "loss", gamma=gamma)


def test_rho_and_own_models_are_checked():
    for rho in (0.0, 1.5, "half"):
        with pytest.raises(UserError, match="rho"):
            fedval("accuracy", rho=rho)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="every client has its own model"):
        m2f(Validated(find_objective("accuracy")))


TOML = """
[task]
data = "test_fedval:TINY"
[train]
lr = 0.5
batch = 10
[recipe]
name = "fedval"
criteria = ["validated:accuracy", "validated:parity:sex"]
score = {name = "weighted-mean", weights = [2, 1], rank = "borda"}
[run]
rounds = 2
fraction = 1.0
workers = 1
audit = ["accuracy", "parity:sex"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fedval.toml"
    path.write_text(TOML)
    return path


def test_from_the_command_line(cli: CommandLine, config: Path, tmp_path: Path):
    out = tmp_path / "run"
    assert cli("run", config, "--out", out).code == 0
    assert [one.score for one in Run.load(out).explain(1)] != []
    told = cli("explain", out, "--round", "2", "--json").json
    assert {audit["objective"] for audit in told["audits"]} == {"accuracy", "parity:sex"}
    assert "audit of the model" in cli("explain", out, "--round", "2").out
    assert "audit on its test rows" in cli("explain", out, "--round", "2", "--client", "0").out
    assert "audit at the server" in cli("report", out, "--text").out
    assert set(cli("report", out, "--text", "--json").json["audit"]) == {"accuracy", "parity:sex"}
    assert "parity:ATTRIBUTE" in cli("list", "objectives").out
    assert any(row["criterion"] == "validated:OBJECTIVE" for row in cli("list", "criteria", "--json").json)
    for name in ("qffl", "agnostic"):
        plain = ["--set", f"recipe={{name='{name}'}}"]
        assert cli("run", config, "--out", tmp_path / name, *plain).code == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("recipe.criteria=validated:justice", "objective"),
        ("recipe.criteria=[{name='validated:accuracy',rho=0}]", "recipe.criteria.0"),
        ("recipe.score={name='weighted-mean',weights=[0,0]}", "gamma"),
        ("recipe.score={name='weighted-mean',rank='median'}", "recipe.score"),
        ("run.audit=['parity:race']", "race"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, config: Path, tmp_path: Path, change: str, says: str):
    assert says in one_line(cli("run", config, "--out", tmp_path / "run", "--set", change))
    assert not (tmp_path / "run").exists()
