"""Several files: a pattern, a folder, a list; the client is the file's stem, and differences are shown."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import CommandLine, one_line

from fedmerit import Federation, Run
from fedmerit.config.schema import dump_config, load_config, make_config
from fedmerit.errors import DataError, UserError
from fedmerit.tasks.registry import make_federation

ROWS = 30


def rows(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.integers(20, 90, ROWS)
    ward = random.choice(["heart", "lung"], ROWS)
    return pd.DataFrame(
        {"age": age, "ward": ward, "ph": random.normal(7.4, 0.1, ROWS), "died": random.integers(0, 2, ROWS)}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for place, name in enumerate(("north.csv", "site 2.csv.gz", "site 10.parquet")):
        table = rows(place)
        path = tmp_path / "in" / name
        table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    (tmp_path / "in" / "notes.md").write_text("not a table")
    return tmp_path / "in"


WAYS: dict[str, Any] = {
    "pattern": "table:in/*[!d]",
    "folder": "table:in",
    "list": ["table:in/north.csv", "in/site 2.csv.gz", "in/site 10.parquet"],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_file_is_a_client(way: str, folder: Path) -> None:
    config = make_config({"task": {"data": WAYS[way], "label": "died"}})
    assert load_config(_written(config)).task == config.task
    data = make_federation(config.task, 0)
    assert data.names == ("north", "site 2", "site 10")
    assert (data.train.sizes + data.test.sizes).tolist() == [ROWS] * 3
    assert [file["rows"] for file in data.data.files] == [ROWS] * 3
    in_python = Federation.from_files(folder, label="died")
    assert np.array_equal(in_python.train.x, data.train.x)


def _written(config: Any) -> Path:
    Path("written.toml").write_text(dump_config(config))
    return Path("written.toml")


def test_one_file_is_one_client_and_a_column_may_name_clients(folder: Path) -> None:
    assert Federation.from_files(folder / "north.csv", label="died").names == ("north",)
    assert Federation.from_files(["in/north.csv", folder / "site 2.csv.gz"], label="died").names == ("north", "site 2")
    data = Federation.from_files("in/*.csv*", label="died", client="ward")
    assert data.names == ("heart", "lung")
    assert [column.name for column in data.encoder.columns] == ["age", "ph"]
    dealt = Federation.from_files("in", label="died", partition="iid", clients=5)
    assert len(dealt.names) == 5


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for site in ("a", "b"):
        (tmp_path / site).mkdir()
        rows(ord(site)).to_csv(tmp_path / site / "data.csv", index=False)
    assert Federation.from_files(f"{tmp_path}/*/data.csv", label="died").names == ("a/data.csv", "b/data.csv")


def test_a_renamed_column_is_the_same_column(folder: Path) -> None:
    rows(0).rename(columns={"ph": "arterial ph"}).to_csv(folder / "north.csv", index=False)
    different = Federation.from_files("in", label="died").data
    assert [one.kind for one in different.suspicions] == ["schema", "schema"]
    assert "Does north have ph under another name" in different.suspicions[1].text
    data = Federation.from_files("in", label="died", rename={"arterial ph": "ph"})
    assert data.data.suspicions == ()
    with pytest.raises(DataError, match=r"task\.rename gives two columns .* the name 'age'"):
        Federation.from_files("in", label="died", rename={"ward": "age"})


def test_a_copied_file_is_suspected(folder: Path) -> None:
    rows(0).to_csv(folder / "south.csv", index=False)
    data = Federation.from_files("in/*.csv", label="died")
    one = next(one for one in data.data.suspicions if one.kind == "copy")
    assert (one.client, "Is south a copy of north?" in one.text) == ("south", True)
    kept = Federation.from_files("in/*.csv", label="died", replace={"file": {"south": ""}})
    assert kept.names == ("north",)


WRONG: dict[str, tuple[str, str, str]] = {
    "no match": ("", "in/*.xyz", "no table matches 'in/[*].xyz'; paths start at the current folder"),
    "no header": ("1,2\n3,4\n", "in/*.csv", "must begin with a line of column names .got 1,2."),
    "no label": ("age,ward,ph,die\n1,a,2,1\n", "in/*.csv", r"bad has no column died \(did you mean 'die'\?\)"),
    "ragged": ("age,ward,ph,died\n1,a\n", "in/*.csv", "bad.csv is not a readable CSV file"),
    "column file": ("age,file,died\n1,a,1\n", "in/bad.csv|in/north.csv", "a column is called 'file'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_in_one_line(name: str, folder: Path) -> None:
    content, paths, message = WRONG[name]
    if content:
        (folder / "bad.csv").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        Federation.from_files(paths.split("|"), label="died")
    assert "\n" not in str(caught.value)


def test_init_and_run_accept_a_pattern(folder: Path, cli: CommandLine) -> None:
    assert cli("init", "p.toml", "--data", "in/*.csv*", "--yes").code == 0
    assert cli("init", "q.toml", "--data", "in/*[!d]", "--yes").code == 0
    text = Path("p.toml").read_text()
    assert 'data = "table:in/*.csv*"' in text
    assert 'label = "died"' in text
    assert "client =" not in text
    answer = cli("run", "p.toml", "--out", "runs/a", "--set", "run.rounds=1", "--set", "run.workers=1")
    assert answer.code == 0, answer.err
    assert Run.load("runs/a").ledger.names() == ["north", "site 2"]
    predicted = cli("predict", "runs/a", "in/north.csv")
    assert (predicted.code, predicted.err) == (0, "")  # the file's stem names the client


def test_init_does_not_guess_a_label(folder: Path, cli: CommandLine) -> None:
    rows(0).rename(columns={"died": "flag"}).to_csv("one.csv", index=False)
    answer = cli("init", "p.toml", "--data", "one.csv", "--yes")
    assert re.search(r"--yes cannot tell which column to predict \(.*flag\); give --label COLUMN", one_line(answer))
    assert not Path("p.toml").exists()
    named = ("init", "p.toml", "--data", "one.csv", "--yes", "--label", "flag")
    assert "--yes cannot tell which column names the client" in one_line(cli(*named))
    assert cli(*named, "--client", "ward").code == 0


def table_with(target: str, changed: set[float] | None = None) -> pd.DataFrame:
    """A table of two clients; the rows whose `key` is in `changed` have other values."""
    random = np.random.default_rng(5)
    size = 120
    table = pd.DataFrame(
        {
            "client": ["a", "b"] * (size // 2),
            "key": random.normal(size=size).astype(np.float32),
            "value": random.normal(50, 9, size).round(1),
            "word": random.choice(["p", "q", "r"], size),
            "y": random.integers(0, 2, size) if target == "classes" else random.normal(5, 2, size).round(2),
        }
    )
    if changed:
        rows_changed = table["key"].map(lambda key: float(np.float32(key)) in changed)
        table.loc[rows_changed, "value"] = -999.0
        table.loc[rows_changed, "word"] = [f"new {place}" for place in range(int(rows_changed.sum()))]
        table.loc[rows_changed, "key"] = 1e6
        if target == "number":
            table.loc[rows_changed, "y"] *= 1000
    return table


@pytest.mark.parametrize("target", ["classes", "number"])
def test_nothing_about_test_rows_reaches_the_model(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = table_with(target)
    split = Federation.from_frame(
        plain,
        client="client",
        label="y",
        target=target,
        standardise="none",
        seed=1,
    )
    keys = {float(key) for key in split.test.x[:, 0]}
    assert len(keys) == 24
    number = 'target = "number"\ntolerance = 1.0' if target == "number" else ""
    models = []
    for name, table in {"plain": plain, "changed": table_with(target, keys)}.items():
        table.to_csv(f"{name}.csv", index=False)
        Path(f"{name}.toml").write_text(
            f'[task]\ndata = "table:{name}.csv"\nclient = "client"\nlabel = "y"\n{number}\n'
            "[run]\nrounds = 2\nseed = 1\nworkers = 1\nfraction = 1.0\n"
        )
        answer = cli("run", f"{name}.toml", "--out", f"runs/{name}")
        assert answer.code == 0, answer.err
        models.append(Path(f"runs/{name}/model.safetensors").read_bytes())
    assert models[0] == models[1]
