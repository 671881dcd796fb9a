"""`fedmerit init`: answers become a file that loads; completion and the groups of --help."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedmerit.cli import app
from fedmerit.config.schema import Config, load_config, make_recipe
from fedmerit.engine.run import run_config
from fedmerit.errors import ConfigError, FolderError, UnknownName
from fedmerit.tasks.registry import TASKS
from fedmerit.tasks.starter import MATTERS, Starter

TABLE = "hospital,age,smoker,sex,died\n" + "".join(
    f"H{place % 3},{40 + place % 37},{'yes' if place % 4 else 'no'},{'fm'[place % 2]},{place % 5 % 2}\n"
    for place in range(60)
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "hospitals.csv").write_text(TABLE)
    return str(tmp_path / "hospitals.csv")


def ask(*args: str, typed: str = "") -> str:
    done = CliRunner().invoke(app, ["init", *args], input=typed, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("data", TASKS)
@pytest.mark.parametrize("matters", MATTERS)
def test_every_answer_makes_a_file_that_loads(data: str, matters: str, tmp_path: Path) -> None:
    file = tmp_path / "here.toml"
    file.write_text(Starter(data, matters=matters, attribute="sex").text())
    assert load_config(file).task.data == data


@pytest.mark.parametrize("matters", ["priority", "validation", "rounds"])
def test_what_is_written_runs(matters: str, tmp_path: Path) -> None:
    file = tmp_path / "first.toml"
    ask(str(file), "--yes", "--matters", matters)
    changes = ["run.rounds=1", "run.workers=1", "task.clients=4"]
    assert run_config(load_config(file, changes), tmp_path / "run").ledger.last_round() == 1


def test_a_table_is_asked_for_its_columns_and_runs(table: str, tmp_path: Path) -> None:
    file = tmp_path / "table.toml"
    text = ask(str(file), typed=f"{table}\n\n\nlinear\n4\n")
    assert "Which column names the client" in text
    assert f"next: fedmerit run {file}" in text.replace("\n", " ")
    config = load_config(file, ["run.rounds=1", "run.workers=1"])
    assert (config.task.client, config.task.label, config.task.model) == ("hospital", "died", "linear")
    assert (config.task.server, config.run.fraction) == (6, 1.0)
    assert run_config(config, tmp_path / "run").ledger.names() == ["H0", "H1", "H2"]


@pytest.mark.parametrize("typed", ["3 > 1", "class balance, dataset size", "CB,DS"])
def test_the_order_of_the_criteria_is_asked_for(typed: str, tmp_path: Path) -> None:
    file = tmp_path / "order.toml"
    text = ask(str(file), typed=f"heart-disease\n\npriority\n{typed}\n")
    assert "dataset size: number of training rows" in text
    config = load_config(file)
    assert make_recipe(config.recipe).priority == ("CB", "DS")
    assert config.run.fraction == 1.0  # four hospitals
    assert '["class balance", "dataset size"]' in file.read_text()
    defaults = Config().model_dump()
    written = tomllib.loads(file.read_text())
    assert not [key for part in ("train", "run") for key in written[part] if written[part][key] == defaults[part][key]]


def test_nothing_is_written_over_and_mistakes_are_named(table: str, tmp_path: Path) -> None:
    file = tmp_path / "first.toml"
    ask(str(file), "--yes")
    for wrong, error, words in (
        ([str(file), "--yes"], FolderError, "exists"),
        ([str(tmp_path / "a.toml"), "--yes", "--data", "digitz"], UnknownName, "did you mean 'digits'"),
        ([str(tmp_path / "a.toml"), "--yes", "--matters", "money"], UnknownName, "valid: fairness, honesty"),
        ([str(tmp_path / "a.toml"), "--yes", "--model", "resnet"], UnknownName, "digits-mlp"),
        ([str(tmp_path / "a.toml"), "--yes", "--priority", "LDD > DS"], UnknownName, "one of 'label diversity'"),
        ([str(tmp_path / "a.toml"), "--yes", "--matters", "fairness"], ConfigError, "give --attribute sex"),
        ([str(tmp_path / "a.toml")], ConfigError, "--yes"),
    ):
        with pytest.raises(error, match=words):
            CliRunner().invoke(app, ["init", *wrong], input="", catch_exceptions=False)
    assert not (tmp_path / "a.toml").exists()
    ask(str(file), "--yes", "--force", "--matters", "size")
