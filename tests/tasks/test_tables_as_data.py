"""Tables at the door: frames and files become federations; what was imputed, encoded and dropped is said."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pytest
from helpers import CommandLine
from hospital_table import SIZES, hospital_columns, write_hospitals
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedmerit import Federation, Run
from fedmerit.config.schema import dump_config, load_config, make_config
from fedmerit.errors import ConfigError, DataError, UnknownName, UserError
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.formats.table_files import read_frame
from fedmerit.tasks.registry import load_task, make_task

KEYS: dict[str, Any] = {"client": "hospital", "label": "died", "attributes": ["sex"]}
FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {"pandas": pd.DataFrame, "arrow": pyarrow.table}


def hospitals(**changed: Any) -> Federation:
    return Federation.from_frame(pd.DataFrame(hospital_columns()), **{**KEYS, "server": 40, **changed})


@pytest.mark.parametrize("kind", [*FRAMES, "polars"])
def test_a_frame_becomes_a_federation(kind: str) -> None:
    make = pytest.importorskip("polars").DataFrame if kind == "polars" else FRAMES[kind]
    data = Federation.from_frame(make(hospital_columns()), **KEYS, test=0.2, server=40, validation=0.1)
    assert data.names == tuple(f"hospital {number}" for number in range(1, 9))
    assert data.classes == 2
    assert len(data.server) == 40
    total = len(data.train.y) + len(data.test.y) + len(data.validation.y) + 40
    assert total == sum(SIZES)
    assert data.train.x.shape[1] == 1 + 1 + 2 + 3  # age, pressure, two indicators of sex, three of ward
    assert np.isfinite(data.train.x).all()
    assert set(np.unique(data.train.attributes["sex"])) == {0, 1}
    share = data.test.sizes / (data.test.sizes + data.train.sizes + data.validation.sizes)
    assert np.allclose(share, 0.2, atol=0.02)


def test_the_same_seed_gives_the_same_rows_in_every_form(tmp_path: Path) -> None:
    columns = hospital_columns()
    write_hospitals(tmp_path / "h.parquet")
    pyarrow.csv.write_csv(pyarrow.table(columns), tmp_path / "h.csv")
    frames = [
        Federation.from_frame(pd.DataFrame(columns), **KEYS),
        Federation.from_frame(pyarrow.table(columns), **KEYS),
        Federation.from_files(tmp_path / "h.parquet", **KEYS),
        Federation.from_files(tmp_path / "h.csv", **KEYS),
    ]
    for other in frames[1:]:
        assert np.array_equal(frames[0].train.x, other.train.x)
        assert np.array_equal(frames[0].test.y, other.test.y)
        assert frames[0].report == other.report


def test_the_report_says_what_was_done() -> None:
    report = "\n".join(hospitals().report)
    assert "label died: no = 0, yes = 1\n" in report
    assert "column sex became 2 indicators: f, m\n" in report
    assert "column patient dropped: 620 distinct text values, looks like an ID\n" in report
    assert "column country dropped: it has the same value in every row\n" in report
    assert re.search(r"\d+ of 620 values of pressure missing: replaced by the client's median", report)
    assert report.endswith("age, pressure standardised by each client's training rows")


def test_each_client_is_standardised_by_its_own_training_rows() -> None:
    data = hospitals()
    for client in range(8):
        ages = data.samples(client).x[:, 0]
        assert abs(ages.mean()) < 1e-5
        assert abs(ages.std() - 1) < 1e-5
    assert hospitals(standardise="none").train.x[:, 0].mean() > 50


def test_gaps_get_the_clients_own_median_and_who_has_none_that_of_the_others() -> None:
    frame = pd.DataFrame(
        {"c": ["a"] * 4 + ["b"] * 4, "v": [1.0, 3, 3, None] + [None] * 4, "w": range(8), "y": [0, 1] * 4}
    )
    data = Federation.from_frame(frame, client="c", label="y", test=0.0, standardise="none")
    assert data.train.x[:, 0].tolist() == [1, 3, 3, 3, 3, 3, 3, 3]
    assert "b had no value" in next(note for note in data.report if "missing" in note)


def test_missing_words_and_labels() -> None:
    frame = pd.DataFrame({"c": [1, 1, 2, 2, None], "word": ["x", None, "y", "x", "x"], "y": [1, 2, 2, None, 1]})
    data = Federation.from_frame(frame, client="c", label="y", test=0.0, attributes=["word"])
    assert data.names == ("c 1", "c 2")
    assert data.train.x.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert data.train.y.tolist() == [0, 1, 1]
    texts = list(data.report)
    assert "1 row without y dropped" in texts
    assert "label y: 1 = 0, 2 = 1" in texts
    assert "attribute word: x = 0, y = 1, (missing) = 2" in texts


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("c;v;y\na;1,5;0\na;2,5;1\nb;?;1\nb;3,5;0\n")
    data = Federation.from_files(tmp_path / "t.csv", client="c", label="y", test=0.0, standardise="none")
    assert data.train.x[:, 0].tolist() == [1.5, 2.5, 3.5, 3.5]


def test_a_table_without_clients_is_dealt_out() -> None:
    data = hospitals(client="", partition="dirichlet", clients=5, features=["age", "ward"], server=0)
    assert len(data.names) == 5
    assert data.train.x.shape[1] == 4


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": ({"label": "dead"}, r"unknown column for task.label 'dead' \(did you mean 'died'\?\)"),
    "no client": ({"client": ""}, "task.client must name the column"),
    "same column": ({"client": "died"}, "must be two columns"),
    "label as feature": ({"features": ["died"]}, "must be two columns"),
    "measured label": ({"label": "age"}, "age has .* distinct values .* bin it into classes"),
    "many groups": ({"attributes": ["age"]}, "an attribute must have few groups .age has"),
    "nothing to learn from": ({"features": ["country"]}, "no column to learn from"),
    "whole test": ({"test": 1.0}, "task.test"),
    "server takes all": ({"server": 5000}, "leaves no rows for clients"),
    "unknown setting": ({"colour": "red"}, "unknown key 'task.colour'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_refused_in_one_line(name: str) -> None:
    changed, message = WRONG[name]
    with pytest.raises(UserError, match=message) as caught:
        hospitals(**changed)
    assert "\n" not in str(caught.value)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a table must be a pandas or polars frame"):
        Federation.from_frame([1, 2], label="y")
    with pytest.raises(DataError, match="paths start at the current folder"):
        Federation.from_files(tmp_path / "none.csv", label="y")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        Federation.from_files(tmp_path / "bad.parquet", label="y")
    with pytest.raises(DataError, match="contains infinity"):
        Federation.from_frame(pd.DataFrame({"c": [1, 2], "v": [np.inf, 1], "y": [0, 1]}), client="c", label="y")
    with pytest.raises(DataError, match="at least two classes"):
        Federation.from_frame(pd.DataFrame({"c": [1, 2], "v": [0, 1], "y": [1, 1]}), client="c", label="y")


def test_the_server_takes_no_hospital_away() -> None:
    frame = pd.DataFrame({"c": ["a"] * 30 + ["b"], "v": range(31), "y": [0, 1] * 15 + [1]})
    with pytest.raises(DataError, match=r"task\.server = 30 uses all rows of"):
        Federation.from_frame(frame, client="c", label="y", server=30)


TOML = """
[task]
data = "table:h.parquet"
client = "hospital"
label = "died"
attributes = ["sex"]
test = 0.25
server = 40
{task}
[train]
lr = 0.5
epochs = 2
[recipe]
name = "prioritized"
criteria = "attribute:sex > DS"
[run]
rounds = 2
fraction = 1.0
workers = 1
audit = ["parity:sex"]
"""


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_hospitals(tmp_path / "h.parquet")
    (tmp_path / "h.toml").write_text(TOML.format(task=""))
    return tmp_path / "h.toml"


def test_nobody_writes_python_to_use_a_file(toml: Path, cli: CommandLine) -> None:
    answer = cli("run", toml, "--out", "runs/a")
    assert answer.code == 0, answer.err
    assert "column ward became 3 indicators" in answer.out
    assert answer.err == ""
    alone = cli("run", toml, "--out", "runs/alone", "--set", "run.fraction=0.1")
    assert "draws one of 8 clients" in alone.err
    run = Run.load("runs/a")
    assert run.accuracy > 0.6
    assert run.ledger.names()[0] == "hospital 1"
    assert "label died: no = 0, yes = 1" in [event.text for event in run.events() if event.kind == "data"]
    again = load_config("runs/a/config.toml")
    assert dump_config(again) == dump_config(load_config(toml))


def test_a_model_of_ones_own_is_made_of_inputs_and_classes(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toml.parent / "my_models.py").write_text(
        "from torch import nn\ndef network(inputs, classes):\n    return nn.Linear(inputs, classes)\n"
    )
    monkeypatch.syspath_prepend(str(toml.parent))
    task = make_task(load_config(toml, ["task.model=my_models:network"]))
    assert len(task.learner.start(0)) == 7 * 2 + 2
    assert len(make_task(load_config(toml, ["task.model=linear"])).learner.start(0)) == 16
    with pytest.raises(UnknownName, match="linear, mlp, module:function"):
        make_task(load_config(toml, ["task.model=cnn"]))


def test_keys_of_tables_are_refused_elsewhere() -> None:
    with pytest.raises(ConfigError, match=r"task\.label needs a table"):
        make_config({"task": {"label": "died"}})
    with pytest.raises(ConfigError, match="a share only for tables"):
        load_task("digits", test=0.5)


NUMBERS = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
WORDS = st.sampled_from(["a", "b", "c ", "1", None])
ROWS = st.lists(st.tuples(st.sampled_from(["north", "south", "west"]), NUMBERS, WORDS), min_size=6, max_size=30)


@settings(max_examples=60)
@given(ROWS, st.sampled_from(["client", "none"]))
def test_training_rows_come_back_as_they_were(rows: list[tuple[Any, ...]], standardise: Any) -> None:
    clients, numbers, words = zip(*rows, strict=True)
    frame = pd.DataFrame({"who": clients, "value": np.array(numbers, dtype=float), "word": words})
    frame = frame.assign(place=np.arange(len(rows)), label=np.arange(len(rows)) % 2)
    assume(len(set(clients)) > 1)
    data = Federation.from_frame(frame, client="who", label="label", test=0.0, standardise=standardise)
    inputs, notes = Encoder.from_json(data.encoder.to_json())(read_frame(frame.drop(columns="label")))
    assert notes == []
    for client, name in enumerate(data.names):
        trained, again = data.samples(client).x, inputs[np.array(clients) == name]
        assert sorted(row.tobytes() for row in trained) == sorted(row.tobytes() for row in again)
