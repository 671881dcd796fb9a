"""Numbers and several inputs: what is right, what is audited, which recipes go, which are refused."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fleets import on_flower, run_rounds
from helpers import CommandLine, one_line
from sklearn.metrics import mean_absolute_error, r2_score
from torch import Tensor, nn

from fedmerit import (
    Federation,
    Recipe,
    Run,
    Task,
    TorchLearner,
    UserError,
    adaptive,
    agnostic,
    device_aware,
    fedavg,
    federate,
    fedval,
    m2f,
    prioritized,
    qffl,
    run_config,
)
from fedmerit.config.schema import TrainConfig, make_config
from fedmerit.core.targets import Number
from fedmerit.fleet.local import LocalFleet
from fedmerit.report.card import card

TRAIN = TrainConfig(lr=0.1, epochs=2, batch=16)
KEYS: dict[str, Any] = {"client": "hospital", "test": 0.25, "server": 40, "validation": 0.2}


def stays(rows: int = 320) -> pd.DataFrame:
    """Days in hospital by age and sex, and whether two findings are there."""
    random = np.random.default_rng(3)
    age, sex = random.normal(60, 10, rows), random.choice(["f", "m"], rows)
    days = 12 + 0.5 * (age - 60) + 3 * (sex == "m") + random.normal(0, 1, rows)
    return pd.DataFrame(
        {
            "hospital": random.choice(["north", "south", "west"], rows, p=[0.6, 0.3, 0.1]),
            "age": age,
            "sex": sex,
            "days": days,
            "fever": np.where(age + random.normal(0, 4, rows) > 60, "yes", "no"),
            "cough": (random.normal(0, 0.5, rows) + (sex == "m") > 0.5).astype(int),
        }
    )


def days_task() -> Task:
    data = Federation.from_frame(
        stays(), label="days", target="number", features=["age", "sex"], attributes=["sex"], **KEYS
    )
    return Task(data, TorchLearner(linear, TRAIN, target=Number(tolerance=2)))


def linear() -> nn.Module:
    return nn.Linear(3, 1)


def last_audit(run: Run, client: int) -> dict[str, float]:
    return {name: value for _, who, name, value in run.ledger.audits(run.ledger.last_round()) if who == client}


def test_numbers_are_learned_and_audited() -> None:
    task = days_task()
    run = federate(task, fedavg(), rounds=8)
    test = task.federation.test
    predicted = task.learner.predict(run.model, test.x)
    assert run.accuracy == pytest.approx((np.abs(predicted - test.y) <= 2).mean())
    assert run.accuracy > 0.75
    for client in range(3):
        rows, audit = test.rows(client), last_audit(run, client)
        assert audit["mae"] == pytest.approx(mean_absolute_error(test.y[rows], predicted[rows]))
        assert audit["r2"] == pytest.approx(r2_score(test.y[rows], predicted[rows]))
    assert "to within 2" in next(event for event in run.events() if event.kind == "target").text
    assert "to within 2" in card(run)
    assert "mae" in card(run)


GOOD: dict[str, Callable[[], Recipe]] = {
    "DS": lambda: prioritized("DS"),
    "by loss": lambda: adaptive("DS"),
    "orders": lambda: device_aware("DS", "attribute:sex"),
    "qffl": qffl,
    "agnostic": agnostic,
    "server": lambda: fedval("accuracy", "r2", "worst_group:sex"),
    "rewards": lambda: m2f("DS"),
}


@pytest.mark.parametrize("name", GOOD)
def test_recipes_weigh_clients_that_predict_numbers_alike_on_flower(name: str) -> None:
    task, recipe = days_task(), GOOD[name]()
    models = []
    with LocalFleet(task) as local:
        for fleet in (local, on_flower(task)):
            states, records = run_rounds(fleet, recipe, 2, seed=2, evaluate=True)
            record = records[-1]
            assert record.weights.weights.sum() == pytest.approx(len(record.groups.members) if record.groups else 1)
            models.append((states[-1].model.tobytes(), record.evaluation.correct.tolist()))
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("recipe", "audit", "words"),
    [
        (lambda: prioritized("LD", "DS"), (), "LD, CB and MW count classes"),
        (lambda: fedval("accuracy", "f1"), (), "f1 is for tasks that predict classes"),
        (lambda: fedval("mae"), (), "mae is an error, for run.measure and run.audit"),
        (lambda: prioritized("contribution:shapley:mae"), (), "mae is an error, for run.measure and run.audit"),
        (fedavg, ("auc",), "auc is for tasks that predict classes; this one predicts number"),
        (fedavg, ("parity:sex",), "for tasks that predict classes"),
    ],
)
def test_what_needs_classes_is_refused_in_a_line(
    recipe: Callable[[], Recipe], audit: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words) as error:
        federate(days_task(), recipe(), rounds=1, audit=audit)
    assert "\n" not in str(error.value)


class Both(nn.Module):
    """Two inputs, a mapping out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.scan = nn.Linear(2, 4), nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(4 + 2 * 4, 2)

    def forward(self, table: Tensor, scan: Tensor) -> dict[str, Tensor]:
        seen = torch.cat([self.table(table).relu(), self.scan(scan).relu().flatten(1)], dim=1)
        return {"logits": self.head(seen), "seen": seen}


def small_loss(outputs: dict[str, Tensor], y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs["logits"], y) + 1e-3 * outputs["seen"].square().mean()


def parts_of(batch: Tensor) -> dict[str, Tensor]:
    """The columns of a row as the module's two arguments."""
    return {"table": batch[:, :2], "scan": batch[:, 2:].reshape(-1, 1, 4, 4)}


def test_several_inputs_and_a_mapping_out(tmp_path: Path) -> None:
    random = np.random.default_rng(2)

    def client(rows: int) -> tuple[Any, Any]:
        table, scan = random.normal(size=(rows, 2)), random.normal(size=(rows, 16))
        return np.hstack([table, scan]).astype(np.float32), (table[:, 0] + scan[:, 5] > 0).astype(int)

    data = Federation.from_clients({"a": client(80), "b": client(120)})
    learner = TorchLearner(Both, TrainConfig(lr=0.3, epochs=5, batch=20), small_loss, inputs=parts_of)
    run = federate(Task(data, learner), fedavg(), rounds=5)
    assert pickle.dumps(learner)  # as workers get it
    assert run.accuracy > 0.75
    x = data.test.x[:7]
    outputs = run.module()(**parts_of(torch.from_numpy(x)))["logits"]
    assert run.estimator().predict(x).tolist() == outputs.argmax(1).tolist()
    run.write_onnx(tmp_path / "model.onnx", x)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stays") / "stays.csv"
    stays().to_csv(path, index=False)
    return path


def settings(table: Path, **task: Any) -> dict[str, Any]:
    columns = {"data": f"table:{table}", "client": "hospital", "features": ["age", "sex"], "model": "linear"}
    run = {"rounds": 6, "fraction": 1.0, "workers": 1}
    return {"task": columns | task, "train": {"lr": 0.2, "epochs": 2, "batch": 16}, "run": run}


def test_a_table_of_numbers_by_configuration_alone(table: Path, tmp_path: Path, cli: CommandLine) -> None:
    config = make_config(settings(table, label="days", target="number", tolerance=2.0))
    run = run_config(config, tmp_path / "run")
    assert run.accuracy > 0.75
    assert "the module learns (y - " in next(event for event in run.events() if event.kind == "target").text
    again = Run.load(tmp_path / "run").estimator().predict(stays().head(5))
    assert np.abs(again - stays().days.head(5)).mean() < 2
    answer = cli("predict", tmp_path / "run", table)
    lines = answer.out.splitlines()
    assert lines[0] == "row,predicted"
    assert float(lines[1].split(",")[1]) == pytest.approx(again[0], rel=1e-5)
    assert "no probabilities" in one_line(cli("predict", tmp_path / "run", table, "--proba"))
    assert "mae" in cli("explain", tmp_path / "run", "--round", "6").out


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"label": "days"}, 'set target = "number"'),
        ({"label": "days", "target": "number"}, "half of its deviation"),
        ({"label": "days", "tolerance": 1.0}, 'tolerance needs target = "number"'),
        ({"label": "fever", "target": "number", "tolerance": 1.0}, "needs a column of numbers"),
        (
            {"label": "days", "target": "number", "tolerance": 1.0, "partition": "dirichlet", "clients": 3},
            "needs classes",
        ),
        (
            {"label": "days", "target": "number", "tolerance": 1.0, "attack": {"kind": "label-flip", "share": 0.4}},
            "need classes",
        ),
        ({"label": "days", "target": "number", "tolerance": 1.0, "kinds": {"poor": 0.4}}, "need classes"),
    ],
)
def test_what_a_table_cannot_be_asked(table: Path, tmp_path: Path, task: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        run_config(make_config(settings(table, **task)), tmp_path / "run")
    assert words in str(error.value)


X, NUMBERS = np.zeros((6, 2), np.float32), np.linspace(0, 1, 6)
HOLED = np.where(np.arange(6) == 2, np.nan, NUMBERS)


def learned(outputs: int, **target: Any) -> Run:
    data = Federation.from_clients({"a": (X, NUMBERS), "b": (X, NUMBERS)}, target="number")
    return federate(Task(data, TorchLearner(lambda: nn.Linear(2, outputs), TRAIN, **target)), fedavg(), rounds=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Federation.from_clients({"a": (X, NUMBERS)}), "to predict numbers set target='number'"),
        (lambda: Federation.from_clients({"a": (X, HOLED)}, target="number"), r"must be finite \(row 2"),
        (lambda: Federation.from_clients({"a": (X, NUMBERS)}, target="regression"), "one of classes, number"),
        (lambda: learned(2), "the learner predicts 'classes'"),
        (lambda: learned(3, target=Number(1)), "needs one output"),
        (
            lambda: Federation.from_frame(stays(), label="days", target="number", tolerance=2.0, **KEYS),
            "is a setting of the learner",
        ),
    ],
)
def test_wrong_targets_are_told_at_the_door(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make()
