"""Values of clients: coalitions trained together, against training one by one and against closed forms."""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmerit import Federation, fedavg, federate, load_config, load_task, prioritized
from fedmerit.cli.app import app
from fedmerit.core.targets import Number
from fedmerit.errors import ConfigError
from fedmerit.study.coalitions import (
    ClientValues,
    Members,
    all_test_rows,
    coalitions_of,
    measure_models,
    train_coalitions,
    train_weightings,
    value_coalitions,
)
from fedmerit.tasks.registry import Task

SMALL = ["task.clients=4", "task.partition=dirichlet", "run.rounds=2", "train.lr=0.3"]


@pytest.mark.parametrize("model", ["digits-mlp", "digits-linear"])
def test_coalitions_trained_together_equal_separate_runs(model: str) -> None:
    task = load_task("digits", clients=4, partition="dirichlet", model=model, seed=1, train={"lr": 0.3, "epochs": 2})
    members = coalitions_of(4)
    models = train_coalitions(task, fedavg(), members, rounds=3, seed=5)
    for place in (1, 6, 15):
        ids = tuple(map(int, np.flatnonzero(members[place])))
        alone = federate(task, fedavg(), rounds=3, seed=5, selection=Members(ids)).model
        assert np.abs(alone - models[place]).max() < 1e-6


def test_a_client_without_weight_is_left_out() -> None:
    task = load_task("digits", clients=3, seed=1, train={"lr": 0.3})
    alone = federate(task, fedavg(), rounds=2, seed=5, selection=Members((1,))).model
    (found,) = train_weightings(task, np.array([[0.0, 1.0, 0.0]]), rounds=2, seed=5)
    assert np.abs(found - alone).max() < 1e-6


def test_other_recipes_train_one_coalition_after_the_other() -> None:
    task = load_task("digits", clients=3, seed=1, train={"lr": 0.3})
    recipe = prioritized("LD", "DS")
    models = train_coalitions(task, recipe, coalitions_of(3), rounds=1, seed=2)
    everybody = federate(task, recipe, rounds=1, seed=2, fraction=1.0).model
    assert (models[-1] == everybody).all()


@dataclass(frozen=True)
class GradientStep:
    """Linear regression by one full-batch step: FedAvg over clients is gradient descent on their union."""

    lr: float = 0.2
    target: ClassVar[Number] = Number(1.0)

    def start(self, seed: int) -> np.ndarray:
        return np.zeros(3, np.float32)

    def train(self, model, samples, seed, epochs=None):
        residuals = samples.y - samples.x.astype(np.float64) @ model
        return (model + self.lr * samples.x.T @ residuals / len(samples)).astype(np.float32)

    def predict(self, model, x):
        return x @ model


def test_values_of_linear_regression_equal_the_closed_form() -> None:
    """w_T = (1 - (1 - lr A)^T) A^-1 b with A = X'X / n and b = X'y / n over the coalition's rows."""
    random, rounds, number = np.random.default_rng(0), 4, 5
    rows = {str(i): random.normal(size=(int(random.integers(5, 30)), 3)).astype(np.float32) for i in range(number)}
    truth = np.array([1.0, -2.0, 0.5])
    data = {i: (x, (x @ truth + random.normal(size=len(x))).astype(np.float32)) for i, x in rows.items()}
    federation = Federation.from_clients(data, target="number", test=dict(data))
    task, learner = Task(federation, GradientStep()), GradientStep()
    members = coalitions_of(number)
    models = train_coalitions(task, fedavg(), members, rounds, seed=0)
    table = measure_models(task, models, all_test_rows(task), ["mae"])["mae"]

    def worth(ids: tuple[int, ...]) -> float:
        w = np.zeros(3)
        if ids:
            x, y = (np.concatenate([data[str(i)][part] for i in ids]).astype(np.float64) for part in (0, 1))
            matrix, vector = x.T @ x / len(y), x.T @ y / len(y)
            decay = np.linalg.matrix_power(np.eye(3) - learner.lr * matrix, rounds)
            w = (np.eye(3) - decay) @ np.linalg.solve(matrix, vector)
        everything = [np.concatenate([data[str(i)][part] for i in range(number)]) for part in (0, 1)]
        return -float(np.abs(everything[1] - everything[0] @ w).mean())

    expected = np.zeros(number)
    for order in itertools.permutations(range(number)):
        for place, client in enumerate(order):
            gain = worth(tuple(sorted(order[: place + 1]))) - worth(tuple(sorted(order[:place])))
            expected[client] += gain / math.factorial(number)
    values = ClientValues(federation.names, (0,), members, {"mae": table[np.newaxis]})
    assert np.allclose(values.shapley("mae")[0], expected, atol=1e-5)
    assert values.shapley("mae").sum() == pytest.approx(table[-1] - table[0])


def test_drawn_orders_reach_the_value_of_everybody() -> None:
    number = 13  # one more than the exact rule takes
    members, worths = coalitions_of(number), np.arange(number) / 10
    values = ClientValues(tuple(map(str, range(number))), (0,), members, {"accuracy": (members @ worths)[np.newaxis]})
    assert len(members) < 2**number
    assert np.allclose(values.shapley("accuracy")[0], worths)
    assert values.sampling_error("accuracy") == pytest.approx(0, abs=1e-12)
    assert values.banzhaf("accuracy") is None


def test_reliability_is_one_for_equal_seeds_and_lower_for_noise() -> None:
    members, random = coalitions_of(4), np.random.default_rng(1)
    clean = members @ np.array([0.1, 0.2, 0.3, 0.4])
    noisy = clean + random.normal(0, 0.5, (6, len(members)))
    values = ClientValues(tuple("abcd"), tuple(range(6)), members, {"same": np.tile(clean, (6, 1)), "noisy": noisy})
    assert values.reliability("same") == pytest.approx(1)
    assert values.reliability("noisy") < 0.95


def test_a_folder_keeps_finished_seeds(tmp_path: Path) -> None:
    config = load_config(None, SMALL)
    first = value_coalitions(config, [1], tmp_path / "a", jobs=1)
    trained: list[int] = []
    both = value_coalitions(config, [1, 2], tmp_path / "a", jobs=1, on_seed=trained.append)
    assert trained == [2]
    assert (both.tables["accuracy"][0] == first.tables["accuracy"][0]).all()
    again = value_coalitions(config, [1, 2], None, jobs=2)
    assert (again.tables["log_loss"] == both.tables["log_loss"]).all()


def test_the_command_prints_values_that_add_up(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[task]\nclients = 4\n[run]\nrounds = 2\naudit = ["worst_recall"]\n', encoding="utf-8")
    result = CliRunner().invoke(app, ["compare", str(path), "--coalitions", "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["measures"]) == {"accuracy", "log_loss", "worst_group:client", "worst_recall"}
    for measured in found["measures"].values():
        assert sum(measured["shapley"].values()) == pytest.approx(measured["all"] - measured["nobody"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["recipe.name='m2f'"], "one shared model"),
        (["privacy.noise=1.0", "privacy.clip=1.0", "privacy.delta=1e-5"], "without noise"),
    ],
)
def test_what_has_no_value_per_coalition_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        value_coalitions(load_config(None, [*SMALL, *settings]), [1])
