"""Messy tables: every problem is named before round 1, none is learned from, and the named keys settle it."""

import gzip
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import CommandLine, one_line
from messy_hospitals import CLEAN, PLANTED, SIZES, messy_hospitals

from fedmerit import Federation
from fedmerit.errors import DataError
from fedmerit.tasks.suspicions import KINDS, Suspicion

LEFT_OUT = {"rownames", "patient", "admitted", "country", "comment", "discharge", "insurance", "weight (2)", "file"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hospitals")
    messy_hospitals(path)
    return path


@pytest.fixture(scope="module")
def messy(folder: Path) -> Federation:
    return Federation.from_files(folder, label="died")


def suspicions(data: Federation) -> tuple[Suspicion, ...]:
    return data.data.suspicions


def is_about(one: Suspicion, planted: tuple[str, str, str]) -> bool:
    kind, column, client = planted
    return one.kind == kind and column in ("", one.column) and client in ("", one.client)


@pytest.mark.parametrize("problem", PLANTED)
def test_every_planted_problem_is_named(messy: Federation, problem: str) -> None:
    assert [one for one in suspicions(messy) if is_about(one, PLANTED[problem])]


def test_nothing_else_is_suspected(messy: Federation) -> None:
    others = [one for one in suspicions(messy) if not any(is_about(one, planted) for planted in PLANTED.values())]
    assert [one.column for one in others] == ["weight (2)"]  # a name twice is also a column that other files lack


def test_suspicions_are_ranked_questions_with_a_key(messy: Federation) -> None:
    places = [[*KINDS].index(one.kind) for one in suspicions(messy)]
    assert places == sorted(places)
    for one in suspicions(messy):
        assert "? " in one.text
        assert "\n" not in one.text
        assert one.column or one.client
        assert re.search(r"task\.(replace|drop|rename) = ", one.text)


def test_no_planted_problem_is_learned_from(messy: Federation, folder: Path) -> None:
    encoder = messy.encoder
    assert encoder.labels == ("no", "yes")
    columns = {column.name: column for column in encoder.columns}
    assert not LEFT_OUT & columns.keys()
    assert columns["sex"].kinds == ("female", "male")
    assert columns["ward"].kinds == ("Säuglinge", "medicine", "surgery")
    assert sum(len(part.y) for part in (messy.train, messy.test)) == sum(SIZES.values()) + 8 - 2  # copies, typos
    raw = Federation.from_files(folder, label="died", standardise="none")
    place = [column.name for column in encoder.columns].index("creatinine")
    inputs = sum(column.width for column in encoder.columns[:place])
    values = np.concatenate([raw.train.x[:, inputs], raw.test.x[:, inputs]])
    assert values.min() > 0
    crp = raw.train.x[:, inputs + 1]
    assert (crp == np.float32(0.5)).sum() > 8  # limits of detection


def test_clean_columns_are_untouched(folder: Path, tmp_path: Path) -> None:
    clean = messy_hospitals(tmp_path / "again")
    data = Federation.from_files(folder, label="died", features=CLEAN, test=0.0, standardise="none")
    assert not [one for one in suspicions(data) if one.column in CLEAN and one.kind != "schema"]
    for site in ("north", "east", "harbour"):  # commas, semicolons with decimal commas, Windows-1252
        rows = data.samples(data.names.index(site)).x
        wanted = [[row[name] for name in CLEAN] for row in clean[site]]
        assert rows.tolist() == np.array(wanted, np.float32).tolist()


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Settings of both; lists are joined."""
    both = dict(first)
    for key, value in second.items():
        if isinstance(value, dict):
            both[key] = merged(both.get(key, {}), value)
        else:
            both[key] = [*both.get(key, []), *value] if isinstance(value, list) else value
    return both


def test_the_named_keys_settle_every_suspicion(folder: Path) -> None:
    settings: dict[str, Any] = {}
    for _ in range(3):  # one value is named at a time
        found = suspicions(Federation.from_files(folder, label="died", **settings))
        if not found:
            break
        for one in found:
            match = re.search(r"task\.(replace|drop|rename) = (\{.*?\}\}|\[.*?\]|\{.*?\})", one.text)
            assert match, one.text
            settings = merged(settings, tomllib.loads(f"{match[1]} = {match[2]}"))
    assert not found
    data = Federation.from_files(folder, label="died", strict=True, **settings)
    assert data.names == ("east", "harbour", "hill", "north", "south", "west")  # left out: few rows, one label


def test_strict_refuses_in_one_line(folder: Path) -> None:
    with pytest.raises(DataError, match=r"task\.strict refuses .* suspicions, the first: Is died = 'yse'") as caught:
        Federation.from_files(folder, label="died", strict=True)
    assert "\n" not in str(caught.value)


TOML = """
[task]
data = "table:{folder}/*.csv"
label = "died"
[run]
rounds = 1
workers = 1
fraction = 1.0
"""


def test_doctor_and_run_name_the_problems_before_round_1(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h.toml").write_text(TOML.format(folder=folder))
    answer = cli("doctor", "h.toml", "--json")
    assert answer.code == 0, answer.err
    found = answer.json["suspicions"]
    assert {"yse", "crp", "hill"} <= {word for one in found for word in re.findall(r"\w+", str(one))}
    assert all(one["text"] and (one["column"] or one["client"]) for one in found)
    assert answer.json["labels"]["lake"] == {"no": 55, "yes": 0}
    assert {"column": "crp", "kind": "number", "role": "input"}.items() <= next(
        one for one in answer.json["columns"] if one["column"] == "crp"
    ).items()
    shown = cli("doctor", "h.toml").out
    assert "Is died = 'yse' a typo of 'yes'?" in shown
    strict = cli("doctor", "h.toml", "--set", "task.strict=true", "--json")
    assert (strict.code, strict.json["well"], len(strict.json["suspicions"])) == (1, False, len(found))
    assert "task.strict refuses" in one_line(cli("run", "h.toml", "--out", "runs/no", "--set", "task.strict=true"))
    ran = cli("run", "h.toml", "--out", "runs/a").out
    assert ran.index("Is died = 'yse' a typo") < ran.index("round 1 of 1")
    assert ran.index("data: label died: no = 0, yes = 1") < ran.index("round 1 of 1")
    study = cli("compare", "h.toml", "--out", "runs/study", "--grid", "train.lr=0.1,0.2")
    assert "note: Is died = 'yse' a typo" in study.err
    assert '"kind": "label"' in Path("runs/a/data.json").read_text()
    assert cli("verify", "runs/a").code == 0


FEATURES = {
    "adult": "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country",
    "german-credit": "status months history purpose amount savings employment rate personal debtors residence property "
    "age plans housing credits job liable telephone foreign",
    "compas": "sex age age_cat race juv_fel_count juv_misd_count juv_other_count priors_count c_charge_degree "
    "c_charge_desc decile_score score_text",
    "medpar": "los hmo white age80 type type1 type2 type3",
    "heart-disease": "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal",
}
"""Columns that the documentation of a data set calls a feature."""


def unpacked(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def real_table(name: str, source: Path, out: Path) -> Federation:
    """Each data set as its raw file, with a header where it has none."""
    header = ",".join(FEATURES[name].split())
    if name == "heart-disease":
        for site in ("cleveland", "hungarian", "switzerland", "va"):
            (out / f"{site}.csv").write_text(f"{header},num\n" + (source / f"processed.{site}.data").read_text())
        return Federation.from_files(out, label="num")
    if name == "medpar":
        return Federation.from_files(source / "medpar.csv", client="provnum", label="died")
    settings: dict[str, Any] = {"partition": "iid", "clients": 4}
    if name == "adult":
        rows = unpacked(source / "adult.data.gz") + unpacked(source / "adult.test.gz").partition("\n")[2]
        (out / "t.csv").write_text(f"{header},income\n" + "\n".join(filter(None, rows.splitlines())))
        return Federation.from_files(out / "t.csv", label="income", **settings)
    if name == "german-credit":
        (out / "t.csv").write_text(f"{header},risk\n" + unpacked(source / "german.data.gz").replace(" ", ","))
        return Federation.from_files(out / "t.csv", label="risk", **settings)
    return Federation.from_files(source / "compas-scores-two-years.csv.gz", label="two_year_recid", **settings)


@pytest.mark.parametrize("name", FEATURES)
def test_at_most_one_false_alarm_per_real_table(name: str, data_folder: Callable[[str], Path], tmp_path: Path) -> None:
    data = real_table(name, data_folder(name), tmp_path)
    alarms = [one.text for one in suspicions(data) if one.column in FEATURES[name].split()]
    expected = {"heart-disease": ["Does 0 in chol mean missing"], "compas": ["Is c_charge_desc an ID"]}
    assert [text.partition("?")[0] for text in alarms] == expected.get(name, [])


def frame(**columns: Any) -> pd.DataFrame:
    rows = 60
    base = {"site": ["a", "b"] * 30, "x": np.sin(np.arange(rows)), "y": [0, 1, 1] * 20}
    return pd.DataFrame(base | columns)


def found(data: pd.DataFrame, **settings: Any) -> dict[str, Suspicion]:
    federation = Federation.from_frame(data, client="site", label="y", **settings)
    return {f"{one.kind} {one.column or one.client}": one for one in suspicions(federation)}


def test_a_plain_table_raises_no_suspicion() -> None:
    assert found(frame(z=np.cos(np.arange(60)), dose=[0, 5, 10, 5] * 15, word=[*"pqrqr"] * 12)) == {}


def test_a_column_of_words_and_numbers_is_asked_about_and_kept() -> None:
    mixed = ["12", "13", "high", "14", "low"] * 12
    one = found(frame(mixed=mixed))["numbers mixed"]
    assert "60% of its values are" in one.text
    assert found(frame(mixed=["12", "13", "15", "14", "low"] * 12), features=["mixed", "x"]) == {}


def test_numbers_are_read_by_the_stated_rules() -> None:
    cells = ["<0.5", "1.5", "3,5", "1,234.5", "70 kg", "80 kg"] * 10
    data = Federation.from_frame(frame(v=cells), client="site", label="y", features=["v"], test=0.0, standardise="none")
    assert sorted(set(data.train.x[:, 0].tolist())) == [0.5, 1.5, 3.5, 70.0, 80.0, 1234.5]


def test_a_leak_a_code_and_an_id_stay_if_the_configuration_says_so() -> None:
    data = frame(leak=["u", "v", "v"] * 20, number=range(60), code=[-999.0, 4, 5, 4] * 15)
    assert {"leak leak", "id number", "code code"} <= found(data).keys()
    settings = {"features": ["x", "leak", "number", "code"], "replace": {"code": {"-999": "-999"}}}
    kept = Federation.from_frame(data, client="site", label="y", standardise="none", **settings)
    assert suspicions(kept) == ()
    assert kept.train.x.shape[1] == 5
    assert kept.train.x[:, 4].min() == -999


def written(folder: Path, **tables: pd.DataFrame) -> Path:
    for site, table in tables.items():
        table.to_csv(folder / f"{site}.csv", index=False)
    return folder


def test_rare_and_unknown_labels_are_no_classes(tmp_path: Path) -> None:
    words = pd.Series(["no", "no", "yes"] * 20)
    for odd in ("noo", "unknown", "1O"):
        labels = words.copy()
        labels[7] = odd
        data = Federation.from_files(written(tmp_path, a=frame(y=labels), b=frame(y=words)), label="y", seed=1)
        assert data.encoder.labels == ("no", "yes")
        assert [one.text for one in suspicions(data) if one.kind == "label" and repr(odd) in one.text]
        kept = Federation.from_files(tmp_path, label="y", replace={"y": {odd: odd}})
        assert kept.classes == 3
        assert not [one for one in suspicions(kept) if one.kind == "label"]
    coded = frame(y=[0, 1, 1] * 19 + [0, 1, 11])
    assert "label y" in found(coded)
    assert found(coded)["label y"].replace == {"11": ""}


def test_words_for_unknown_are_missing_values() -> None:
    data = frame(sex=["f", "m", "m", "Unknown"] * 15)
    assert found(data)["code sex"].replace == {"Unknown": ""}


def test_a_client_that_writes_other_words_is_asked_about(tmp_path: Path) -> None:
    sex = ["f", "m"] * 30
    tables = {"a": frame(sex=sex), "b": frame(sex=[1, 2] * 30), "c": frame(sex=sex, y=["dead", "alive", "dead"] * 20)}
    data = Federation.from_files(written(tmp_path, **tables), label="y", drop=["site"])
    asked = {(one.kind, one.column, one.client) for one in suspicions(data)}
    assert {("words", "sex", "b"), ("label", "y", "c")} <= asked
    assert ("words", "sex", "a") not in asked


def test_a_column_that_names_the_client_is_left_out(tmp_path: Path) -> None:
    data = Federation.from_files(written(tmp_path, a=frame(site="A1"), b=frame(site="B1")), label="y")
    assert [column.name for column in data.encoder.columns] == ["x"]
    assert [(one.kind, one.column) for one in suspicions(data)] == [("id", "site")]


def test_spellings_of_several_columns_are_one_question(tmp_path: Path) -> None:
    other = frame(z=1.5).rename(columns=str.upper)
    data = Federation.from_files(written(tmp_path, a=frame(z=2.5), b=frame(z=0.5), c=other), label="y")
    (one,) = [one for one in suspicions(data) if one.kind == "names"]
    assert one.client == "c"
    match = re.search(r"task\.rename = (\{.*?\})", one.text)
    assert match
    names = tomllib.loads(f"rename = {match[1]}")["rename"]
    assert names == {"SITE": "site", "X": "x", "Y": "y", "Z": "z"}
    assert not [
        one for one in suspicions(Federation.from_files(tmp_path, label="y", rename=names)) if "'X'" in one.text
    ]


def test_a_file_of_training_is_predicted_by_the_rules_of_training(tmp_path: Path) -> None:
    from fedmerit.tasks.formats.table_files import read_table

    values = [*map(str, range(58)), "pending", "-888"]
    tables = {"a": frame(v=values), "b": frame(v=range(60)).rename(columns={"v": "volume"}), "c": frame(v=range(60))}
    data = Federation.from_files(written(tmp_path, **tables), label="y", rename={"volume": "v"}, seed=1)
    for site in "abc":
        inputs, notes = data.encoder(read_table(tmp_path / f"{site}.csv"))
        rows = {tuple(row) for row in inputs.tolist()}
        assert {tuple(row) for row in data.samples(data.names.index(site)).x.tolist()} <= rows
        assert notes == (["column v contains -888, pending, read as missing"] if site == "a" else [])


def test_bytes_that_are_not_utf8_may_come_late(tmp_path: Path) -> None:
    rows = "u,1,0\nu,2,1\nv,1,1\nv,2,0\n" * 5000 + "é,1,0\né,2,1\n" * 9
    (tmp_path / "a.csv").write_bytes(f"w,x,y\n{rows}".encode("cp1252"))
    data = Federation.from_files(tmp_path, label="y")
    assert "é" in data.encoder.columns[0].kinds
    assert data.data.files[0]["form"] == "commas, Windows-1252"


def test_what_only_test_rows_show_changes_nothing() -> None:
    data = frame(word=[*"pqrqr"] * 12, code=[3.0, 4, 5, 4] * 15)
    plain = Federation.from_frame(data, client="site", label="y", seed=3)
    scaled = Federation.from_frame(data, client="site", label="y", seed=3, standardise="none")
    rows = [place for place, x in enumerate(data["x"]) if np.float32(x) in scaled.test.x[:, 0]]
    assert len(rows) == len(plain.test.y)
    data.loc[rows, "code"], data.loc[rows, "word"] = -999.0, "unseen"
    changed = Federation.from_frame(data, client="site", label="y", seed=3)
    assert np.array_equal(plain.train.x, changed.train.x)
    texts = [one.text for one in suspicions(changed)]
    assert any("Does -999 in code mean missing? Only rows that are not trained on show it" in text for text in texts)
