"""FedVal on real clients: the server's scores become weights, audits are kept, mistakes are named at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line

from fedmerit import (
    DS,
    Federation,
    Run,
    Samples,
    Split,
    Task,
    TaskSpec,
    TorchLearner,
    Validated,
    fedavg,
    federate,
    fedval,
    m2f,
)
from fedmerit.config.schema import make_config
from fedmerit.core.objectives import find_objective
from fedmerit.errors import ConfigError, UserError
from fedmerit.learn.models import dense
from fedmerit.tasks.attackers import plant

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


def test_audits_are_what_the_objectives_say():
    made = task()
    run = federate(made, fedavg(), rounds=4, fraction=1.0, evaluate_every=2, audit=("accuracy", "parity:sex"))
    assert sorted({round for round, *_ in run.ledger.audits()}) == [2, 4]
    found = {(client, name): value for _, client, name, value in run.ledger.audits(4)}
    assert len(found) == 2 * (CLIENTS + 1)
    server, test = made.federation.server, made.federation.test
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


@pytest.mark.parametrize("gamma", [(0, 0), (-1, 2), (float("nan"), 1), (1,), (1, 1, 1)])
def test_gamma_is_checked(gamma: tuple[float, ...]):
    with pytest.raises(ConfigError, match="gamma"):
        fedval("accuracy", "loss", gamma=gamma)


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
