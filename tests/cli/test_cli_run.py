"""`fedmerit run`: what it writes, what it refuses, how it fails."""

import json
from pathlib import Path

import pytest
from helpers import CommandLine, contents, one_line, spawn

from fedmerit import Run, load_config

FILES = {"SHA256SUMS", "best.safetensors", "config.toml", "ledger.db", "model.safetensors"}
SETTINGS = """
[task]
partition = "dirichlet"
clients = 6
[train]
lr = 0.5
epochs = 2
[recipe]
name = "prioritized"
criteria = ["LD", "DS"]
normalise = "max"
[run]
rounds = 2
fraction = 0.5
workers = 1
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "digits.toml"
    path.write_text(SETTINGS)
    return path


def test_a_run_in_a_process_of_its_own(settings: Path, tmp_path: Path):
    out = tmp_path / "deep" / "run"
    answer = spawn("run", settings, "--out", out, "--set", "run.rounds=3")
    assert answer.code == 0, answer.err
    assert set(contents(out)) == FILES
    assert "round 3 of 3" in answer.out
    assert f"next: fedmerit explain {out}" in answer.out.replace("\n", "")
    kept = load_config(out / "config.toml")
    assert kept == load_config(settings, ["run.rounds=3"])
    run = Run.load(out)
    assert f"accuracy {run.accuracy:.4f}" in answer.out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "study.toml", "--out", "runs/a"], "`fedmerit compare "),
        (["doctor", "study.toml"], "`fedmerit compare "),
        (["compare", "digits.toml", "--out", "runs/a"], "`fedmerit run "),
        (["run", "clients.csv", "--out", "runs/a"], "`fedmerit weigh "),
        (["weigh", "digits.toml", "--priority", "DS"], "`fedmerit run`"),
        (["explain", "digits.toml"], "`fedmerit run`"),
    ],
)
def test_a_file_for_another_command_names_that_command(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str], hint: str
):
    monkeypatch.chdir(Path(__file__).parents[2] / "examples")
    assert hint in one_line(cli(*arguments))


def test_json_is_a_line_per_round_and_nothing_else(cli: CommandLine, settings: Path, tmp_path: Path):
    out = tmp_path / "run"
    answer = cli("run", settings, "--out", out, "--json", "--set", "run.evaluate_every=2")
    assert (answer.code, answer.err) == (0, "")
    first, last = (json.loads(line) for line in answer.out.splitlines())
    assert (first["round"], last["round"]) == (1, 2)
    assert first["accuracy"] is None
    assert last["accuracy"] == Run.load(out).accuracy
    assert set(last) >= {"round", "accuracy", "p10", "p50", "p90", "clients", "left_out", "seconds"}
    assert (last["clients"], last["left_out"]) == (3, {})


def test_a_folder_that_exists_is_refused_and_left_as_it_was(cli: CommandLine, settings: Path, tmp_path: Path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.toml").write_text("mine")
    assert "exists" in one_line(cli("run", settings, "--out", out))
    assert names(out) == ["config.toml"]
    assert (out / "config.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("recipe.criteria=LD,dataset", "unknown criterion 'dataset'; did you mean one of 'dataset size' (DS), "),
        ("recipe.criteria=[]", "at least one criterion"),
        ("recipe.criteria=DS,DS", "each criterion may appear once (got DS, DS)"),
        ("recipe.name=priority", "unknown recipe 'priority' (did you mean 'prioritized'?)"),
        ("recipe.score=sum", "unknown recipe.score 'sum'"),
        ("recipe.score=owa", "owa needs `weights`, best value first, sum 1"),
        ("recipe.normalise=none", "(got LD, DS)"),
        ("recipe.normalize=max", "unknown key 'recipe.normalize' (did you mean 'normalise'?)"),
        ("task.data=digit", "unknown task 'digit' (did you mean 'digits'?)"),
        ("task.data=no.such.module:TASK", "no.such.module:TASK"),
        ("task.model=digits-cnn", "unknown model of task digits 'digits-cnn'"),
        ("task.partition=natural", "partition 'natural'"),
        ("task.clients=5000", "more clients than samples"),
        ("train.lr=0", "train.lr: must be greater than 0 (got 0)"),
        ("train.lr=fast", "train.lr"),
        ("run.workers=0", "run.workers"),
        ("lr=1", "--set needs section.key=value"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    cli: CommandLine, settings: Path, tmp_path: Path, override: str, message: str
):
    line = one_line(cli("run", settings, "--out", tmp_path / "run", "--set", override))
    assert line.startswith("error: ")
    assert message in line
    assert names(tmp_path) == ["digits.toml"]


def test_a_configuration_that_is_not_there(cli: CommandLine, tmp_path: Path):
    assert "no configuration file" in one_line(cli("run", tmp_path / "none.toml", "--out", tmp_path / "run"))
    assert names(tmp_path) == []


@pytest.mark.parametrize("priority", ["IS", "attribute:region"])
def test_a_criterion_that_the_data_cannot_give_is_a_mistake(
    cli: CommandLine, settings: Path, tmp_path: Path, priority: str
):
    one_line(cli("run", settings, "--out", tmp_path / "run", "--set", f"recipe.criteria={priority}"))


OWN_TASK = """
from fedmerit import Federation, Split, TaskSpec
import numpy as np

def load(config, seed):
    {body}

def split():
    x = np.random.default_rng(0).normal(size=(12, 64)).astype(np.float32)
    return Split(x, np.arange(12) % 10, np.array([0, 6, 12]))

TASK = TaskSpec("own", "mine", load, models=("digits-linear",))
"""


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a module with a task of one's own; its name is new in every test."""

    def write(body: str) -> str:
        folder = tmp_path / "modules"
        folder.mkdir()
        name = f"own_task_{abs(hash(tmp_path.as_posix() + body))}"
        (folder / f"{name}.py").write_text(OWN_TASK.format(body=body))
        monkeypatch.syspath_prepend(folder)
        return f"task.data={name}:TASK"

    return write


def test_a_task_of_ones_own(cli: CommandLine, settings: Path, tmp_path: Path, own_task):
    task = own_task('return Federation(("Ann", "[b]Bob"), split(), split(), 10)')
    answer = cli("run", settings, "--out", tmp_path / "run", "--set", task, "--set", "run.fraction=1.0")
    assert answer.code == 0, answer.err
    explained = cli("explain", tmp_path / "run", "--round", "1", "--json").json
    assert [client["name"] for client in explained["clients"]] == ["Ann", "[b]Bob"]
    assert "[b]Bob" in cli("explain", tmp_path / "run", "--round", "1").out
    assert "[b]Bob got" in cli("explain", tmp_path / "run", "--round", "1", "--client", "[b]Bob").out


def test_a_failure_is_one_line_and_code_1(
    cli: CommandLine, settings: Path, tmp_path: Path, own_task, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("FEDMERIT_DEBUG", raising=False)
    arguments = ["run", settings, "--out", tmp_path / "run", "--set", own_task('raise RuntimeError("no [disk] left")')]
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines() == ["failed: RuntimeError: no [disk] left (FEDMERIT_DEBUG=1 shows where)"]
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("FEDMERIT_DEBUG", "1")
    with pytest.raises(RuntimeError, match="left"):
        cli(*arguments)
