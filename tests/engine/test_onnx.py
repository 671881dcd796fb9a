"""ONNX files of runs: raw rows in, and the same answers as torch and `fedmerit predict`."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from helpers import CommandLine, one_line
from torch import nn

from fedmerit import Federation, Run, Task, TorchLearner, UserError, fedavg, federate, run_config
from fedmerit.config.schema import make_config
from fedmerit.engine.estimator import Classifier
from fedmerit.tasks.formats.table_files import read_frame

ROWS = 180
RUN = {"rounds": 3, "fraction": 1.0, "workers": 1}
CASES: dict[str, dict[str, Any]] = {
    "classes": {"client": "hospital", "label": "died"},
    "clients that are numbers": {"client": "ward", "label": "died", "features": ["age", "sex", "label"]},
    "words alone": {"client": "hospital", "label": "died", "features": ["sex", "ward"], "model": "linear"},
    "no clients": {"label": "died", "partition": "iid", "clients": 3, "standardise": "none"},
    "a number": {"client": "hospital", "label": "days", "target": "number", "tolerance": 2.0},
    "numbered classes": {"client": "hospital", "label": "stage", "model": "linear"},
    "replaced values": {
        "client": "hospital",
        "label": "died",
        "replace": {"sex": {"divers": "f", "m": ""}, "ward": {"9": ""}, "age": {"60": "70"}},
    },
}


def patients(seed: int = 1) -> pd.DataFrame:
    """Rows with gaps; a column has the name of an output, and one is called x as the module's input is."""
    random = np.random.default_rng(seed)
    age = random.normal(60, 12, ROWS).round(1)
    return pd.DataFrame(
        {
            "hospital": random.choice(["north", "south", "east"], ROWS),
            "label": random.normal(1e6, 3, ROWS),
            "age": np.where(random.random(ROWS) < 0.1, np.nan, age),
            "sex": random.choice(np.array(["f", "m", None], dtype=object), ROWS),
            "x": random.choice(["heart valve", "é, ü"], ROWS),
            "ward": random.integers(1, 4, ROWS),
            "days": (age / 5).round(1),
            "stage": random.integers(1, 4, ROWS),
            "fever": random.choice(["no", "yes"], ROWS),
            "died": np.where(age + random.normal(0, 4, ROWS) > 60, "yes", "no"),
        }
    )


def fresh() -> pd.DataFrame:
    """Other rows, some with a word and a client that no training row had."""
    frame = patients(2)
    frame.loc[:9, "sex"], frame.loc[5:14, "hospital"], frame.loc[5:14, "ward"] = "divers", "west", 9
    return frame


def answers(file: Path, frame: pd.DataFrame) -> list[np.ndarray]:
    """What onnxruntime says of raw columns; it knows nothing of the run."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    feed = {}
    for each in session.get_inputs():
        column = frame[[each.name]]
        words = column.astype(object).where(column.notna(), "").astype(str)
        feed[each.name] = words.to_numpy(object) if each.type == "tensor(string)" else column.to_numpy(float)
    return list(session.run(None, feed))


@pytest.mark.parametrize("case", CASES)
def test_onnx_torch_and_the_command_agree_on_raw_rows(case: str, tmp_path: Path, cli: CommandLine) -> None:
    patients().to_csv(tmp_path / "h.csv", index=False)
    task = {"data": f"table:{tmp_path / 'h.csv'}", "test": 0.2} | CASES[case]
    run_config(make_config({"task": task, "train": {"lr": 0.3}, "run": RUN}), tmp_path / "run").ledger.close()
    (tmp_path / "h.csv").unlink()  # the folder is enough
    assert cli("export", tmp_path / "run", "--onnx", tmp_path / "m.onnx").code == 0
    fresh().to_csv(tmp_path / "fresh.csv", index=False)
    is_number = CASES[case].get("target") == "number"
    answer = cli("predict", tmp_path / "run", tmp_path / "fresh.csv", *([] if is_number else ["--proba"]))
    assert answer.code == 0, answer.err
    table = list(csv.reader(answer.out.splitlines()))
    printed = pd.DataFrame(table[1:], columns=table[0])
    found = answers(tmp_path / "m.onnx", fresh())
    chances = [name for name in printed if name.startswith("p ")]
    by_command = printed[["predicted"] if is_number else chances].to_numpy(float)
    assert np.abs(found[-1].reshape(by_command.shape) - by_command).max() < 1e-5 * (1 + 10 * is_number)
    run = Run.load(tmp_path / "run")
    encoder = run.estimator().encoder
    inputs, _ = encoder(read_frame(fresh()))
    with torch.inference_mode():
        outputs = run.module()(torch.from_numpy(inputs))
    if case == "a number":
        scale = encoder.scale
        assert np.abs(outputs[:, 0].double().numpy() * scale.deviation + scale.mean - found[0]).max() < 1e-5
    else:
        assert np.abs(outputs.softmax(1).numpy() - found[1]).max() < 1e-5
        assert [str(label) for label in found[0]] == printed["predicted"].tolist()


def test_the_file_names_columns_classes_and_the_ledger(tmp_path: Path) -> None:
    data = Federation.from_frame(patients()[["hospital", "age", "sex", "died"]], client="hospital", label="died")
    run = federate(Task(data, TorchLearner(lambda: nn.Linear(data.train.x.shape[1], 2))), fedavg(), rounds=1)
    run.write_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert about["fedmerit.ledger"] == run.ledger.head()
    assert about["fedmerit.rounds"] == "1"
    assert json.loads(about["fedmerit.columns"]) == {"age": "numbers", "sex": "words"}
    assert json.loads(about["fedmerit.classes"]) == ["no", "yes"]
    assert [each.name for each in session.get_inputs()] == ["age", "sex", "hospital"]
    assert [each.name for each in session.get_outputs()] == ["label", "probabilities"]
    model = run.estimator()
    assert model.feature_names_in_.tolist() == ["age", "sex", "hospital"]


def test_images_are_read_as_bytes(tmp_path: Path) -> None:
    task = {"data": "digits", "clients": 4}
    run = run_config(make_config({"task": task, "run": RUN}), tmp_path / "run")
    run.write_onnx(tmp_path / "m.onnx")
    x = np.random.default_rng(1).integers(0, 255, (20, 8, 8, 1), dtype=np.uint8)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    labels, _ = session.run(None, {"x": x})
    assert (labels == run.estimator().predict(x)).all()


def test_no_file_is_written_without_a_package_or_where_answers_differ(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(nn.Linear):
        """Python state changes the answer, and ONNX has none."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x) * self.calls

    data = Federation.from_clients({"a": (np.eye(4), [0, 1, 0, 1]), "b": (np.eye(4), [0, 1, 0, 1])}, test=0.0)
    run = federate(Task(data, TorchLearner(lambda: Odd(4, 2))), fedavg(), rounds=2)
    with pytest.raises(UserError, match=r"must agree to 1e-05 \(they differ by"):
        run.write_onnx(tmp_path / "m.onnx", np.eye(4))
    config = make_config({"task": {"data": "digits", "clients": 2}, "run": RUN | {"rounds": 1}})
    run_config(config, tmp_path / "run").ledger.close()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'fedmerit[onnx]'" in one_line(cli("export", tmp_path / "run", "--onnx", tmp_path / "m.onnx"))
    assert not (tmp_path / "m.onnx").exists()


def test_classes_keep_their_form(tmp_path: Path) -> None:
    for labels, expected in [(["007", "01"], ["007", "01"]), ([2, 3], [2, 3]), ([0.5, 1.5], [0.5, 1.5])]:
        frame = pd.DataFrame({"who": ["a", "b"] * 20, "age": np.arange(40.0) + 0.5, "y": np.repeat(labels, 20)})
        data = Federation.from_frame(frame, client="who", label="y", test=0.0)
        model = federate(Task(data, TorchLearner(lambda: nn.Linear(1, 2))), fedavg(), rounds=1).estimator()
        assert isinstance(model, Classifier)
        assert model.classes_.tolist() == expected
        assert set(model.predict(frame).tolist()) <= set(expected)
        rows: list[list[Any]] = [[12.0, "a"], [None, "b"]]
        assert (model.predict_proba(rows) == model.predict_proba(pd.DataFrame(rows, columns=["age", "who"]))).all()
    for wrong in ([[1.0, "a", 2]], [1.0], [[1.0, "a"], ["old", "b"]]):
        with pytest.raises(UserError, match=r"columns age, who, in this order|numbers or words, not both"):
            model.predict(wrong)


def test_a_private_table_says_that_its_scales_are_not_protected(tmp_path: Path, cli: CommandLine) -> None:
    patients().to_csv(tmp_path / "h.csv", index=False)
    task = {"data": f"table:{tmp_path / 'h.csv'}", "client": "hospital", "label": "died", "features": ["age"]}
    recipe = {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 100}}}
    privacy = {"clip": 1.0, "noise": 1.1, "delta": 1e-3, "reproducible": True}
    run = RUN | {"rounds": 1, "fraction": 0.9, "selection": "poisson"}
    config = make_config({"task": task, "recipe": recipe, "run": run, "privacy": privacy})
    run_config(config, tmp_path / "run").ledger.close()
    answer = cli("export", tmp_path / "run", "--onnx", tmp_path / "m.onnx")
    assert answer.code == 0, answer.err
    assert "scales of clients, which epsilon does not cover" in answer.err
