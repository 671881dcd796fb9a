"""Raw rows of a table in, predictions out: words, gaps and scales as in training, from Python and the command line."""

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import CommandLine, one_line
from torch import nn

from fedmerit import Federation, Run, Task, TorchLearner, UserError, fedavg, federate, run_config
from fedmerit.config.schema import make_config
from fedmerit.engine.estimator import Classifier
from fedmerit.errors import NoteWarning
from fedmerit.tasks.encoding import Encoder

KEYS: dict[str, Any] = {"client": "hospital", "label": "died", "attributes": ["sex"]}
FRESH = """ward;pressure;hospital;note;sex;age
heart;150,5;hospital 2;first;f;71,0
;;hospital 2;no ward, no pressure;m;40,5
lung;120,0;hospital 9;a stranger;m;55,0
eye;;hospital 1;a new ward;f;
"""


def columns(rows: int = 240) -> dict[str, Any]:
    """Three hospitals that measure age on different scales; some pressures and wards are missing."""
    random = np.random.default_rng(4)
    place = np.arange(rows) % 3
    age, pressure = random.normal(60, 12, rows), random.normal(130, 15, rows)
    ward = random.choice(np.array(["heart", "lung", None], dtype=object), rows)
    return {
        "hospital": [f"hospital {number + 1}" for number in place],
        "age": (age * (place + 1)).round(1),
        "pressure": np.where(random.random(rows) < 0.1, np.nan, pressure.round(1)),
        "sex": random.choice(["f", "m"], rows),
        "ward": ward,
        "died": np.where((age - 60) / 12 + (pressure - 130) / 15 + random.normal(0, 0.3, rows) > 0, "yes", "no"),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table that is gone afterwards."""
    home = tmp_path_factory.mktemp("table")
    pd.DataFrame(columns()).to_csv(home / "h.csv", index=False)
    task = {"data": f"table:{home / 'h.csv'}", **KEYS, "test": 0.25, "model": "linear"}
    run = {"rounds": 5, "fraction": 1.0, "workers": 1}
    run_config(make_config({"task": task, "train": {"lr": 0.5}, "run": run}), home / "run")
    (home / "h.csv").unlink()
    return home / "run"


def test_training_rows_are_encoded_as_in_training() -> None:
    data = Federation.from_frame(pd.DataFrame(columns()), **KEYS, test=0.0)
    again = Encoder.from_json(data.encoder.to_json())
    assert again == data.encoder
    frame = pd.DataFrame(columns()).sort_values("hospital", kind="stable")  # the federation has them by client
    learner = TorchLearner(lambda: nn.Linear(data.train.x.shape[1], 2))
    run = federate(Task(data, learner), fedavg(), rounds=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = run.estimator()
        assert isinstance(model, Classifier)
        by_frame = model.predict_proba(frame.drop(columns="died")[["ward", "sex", "hospital", "pressure", "age"]])
    by_hand = learner.predict_proba(run.model, data.train.x)
    assert sorted(map(tuple, by_frame.tolist())) == sorted(map(tuple, by_hand.tolist()))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == ["age", "pressure", "sex", "ward", "hospital"]


def test_a_fresh_file_is_predicted_from_the_folder_alone(
    cli: CommandLine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fresh.csv").write_text(FRESH)
    model = Run.load(folder).estimator()
    with pytest.warns(NoteWarning) as told:
        classes = model.predict(tmp_path / "fresh.csv")
    texts = [str(warning.message) for warning in told]
    assert any("of hospital 9, not a client of the run," in text for text in texts)
    assert any("column ward contains eye, which no training row had" in text for text in texts)
    assert all(warning.filename == __file__ for warning in told)
    answer = cli("predict", folder, tmp_path / "fresh.csv", "--proba")
    assert answer.code == 0, answer.err
    assert "note: column ward contains eye" in answer.err
    head, *lines = answer.out.splitlines()
    assert head == "row,predicted,p no,p yes"
    assert [line.split(",")[1] for line in lines] == classes.tolist()
    frame = pd.read_csv(tmp_path / "fresh.csv", sep=";", decimal=",")
    with pytest.warns(NoteWarning):
        assert (model.predict(frame) == classes).all()
    rows = frame[model.feature_names_in_].to_numpy()
    with pytest.warns(NoteWarning):
        assert (model.predict(rows) == classes).all()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FRESH.encode())))
    assert cli("predict", folder, "-", "--proba").out == answer.out
    found = cli("predict", folder, tmp_path / "fresh.csv", "--json").json
    assert found["labels"] == ["no", "yes"]


def test_gaps_and_scales_are_those_of_the_rows_own_client() -> None:
    data = Federation.from_frame(pd.DataFrame(columns()), **KEYS, test=0.0)
    ages = [row * (place + 1) for place, row in enumerate([60.0] * 3)]
    frame = pd.DataFrame({"hospital": [f"hospital {i}" for i in (1, 2, 3)], "age": ages})
    frame = frame.assign(pressure=np.nan, sex="f", ward=None)
    with pytest.warns(NoteWarning, match="without a column hospital"):
        federate(
            Task(data, TorchLearner(lambda: nn.Linear(data.train.x.shape[1], 2))), fedavg(), rounds=1
        ).estimator().predict(frame.drop(columns="hospital"))
    from fedmerit.tasks.formats.table_files import read_frame

    inputs, notes = data.encoder(read_frame(frame))
    assert notes == []
    assert np.abs(inputs[:, 0]).max() < 0.5  # the middle age of each, though the third writes 180
    own = pd.DataFrame(columns())
    for place in range(3):
        pressure = own[own["hospital"] == f"hospital {place + 1}"]["pressure"]
        filled = pressure.fillna(pressure.median())
        expected = (pressure.median() - filled.mean()) / filled.std(ddof=0)
        assert abs(inputs[place, 1] - expected) < 1e-6
    assert inputs[:, 4:].tolist() == [[0.0, 0.0, 1.0]] * 3  # heart, lung, (missing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,sex\n1,f\n", "trained on: pressure, ward"),
        ("age,pressure,sex,ward\nold,1,f,lung\n", "column age must contain numbers, as in training (got 'old')"),
        ("age,pressure,sex,ward\ninf,1,f,lung\n", "row 0 of column age contains infinity"),
        ("age,pressure,sex,ward\n", "has no rows"),
    ],
)
def test_other_tables_are_refused_in_one_line(
    cli: CommandLine, folder: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "fresh.csv").write_text(text)
    assert message in one_line(cli("predict", folder, tmp_path / "fresh.csv"))
    with pytest.raises(UserError, match=r"lacks|must contain|infinity|no rows"):
        Run.load(folder).estimator().predict(str(tmp_path / "fresh.csv"))


def test_mistakes_of_the_command_on_a_table(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "fresh.csv").write_text(FRESH)
    assert "--drop has no effect" in one_line(cli("predict", folder, tmp_path / "fresh.csv", "--drop", "note"))
    (folder.parent / "damaged").mkdir()
    for name in ("config.toml", "ledger.db", "model.safetensors"):
        (folder.parent / "damaged" / name).write_bytes((folder / name).read_bytes())
    answer = one_line(cli("predict", folder.parent / "damaged", tmp_path / "fresh.csv"))
    assert "encoder.json is missing or not the run's" in answer
    (folder.parent / "damaged" / "encoder.json").write_text("[]")
    assert one_line(cli("predict", folder.parent / "damaged", tmp_path / "fresh.csv")) == answer


def test_a_folder_of_federate_takes_its_learner_and_then_predicts(cli: CommandLine, tmp_path: Path) -> None:
    data = Federation.from_frame(pd.DataFrame(columns()), **KEYS)
    learner = TorchLearner(lambda: nn.Linear(data.train.x.shape[1], 2))
    frame = pd.DataFrame(columns()).head(20)
    run = federate(Task(data, learner), fedavg(), rounds=2, out=tmp_path / "run")
    expected = run.estimator().predict(frame)
    assert (Run.load(tmp_path / "run", learner=learner).estimator().predict(frame) == expected).all()
    with pytest.raises(UserError, match=r"Run\.load\(folder, learner=\.\.\.\)"):
        Run.load(tmp_path / "run").estimator()
    frame.to_csv(tmp_path / "fresh.csv", index=False)
    assert "Run.load(folder, learner=...)" in one_line(cli("predict", tmp_path / "run", tmp_path / "fresh.csv"))
    bare = Federation.from_clients({"a": (np.eye(4), [0, 1, 0, 1]), "b": (np.eye(4), [0, 1, 0, 1])}, test=0.0)
    arrays = federate(Task(bare, TorchLearner(lambda: nn.Linear(4, 2))), fedavg(), rounds=1)
    with pytest.raises(UserError, match="learned from arrays and cannot read the table"):
        arrays.estimator().predict(tmp_path / "fresh.csv")
