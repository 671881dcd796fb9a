"""The command line with a search: what run, explain, show and export say of it, and mistakes in its settings."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from helpers import CommandLine, one_line

CONFIG = """
[task]
data = "digits"
partition = "dirichlet"
clients = 10
validation = 0.2
model = "digits-linear"
[train]
lr = 0.5
epochs = 2
[recipe]
name = "device_aware"
criteria = ["LD", "DS", "MW"]
normalise = "max"
[run]
rounds = 4
fraction = 0.5
seed = 3
workers = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "search.toml"
    path.write_text(CONFIG)
    return path


def test_a_search_from_run_to_export(cli: CommandLine, config: Path, tmp_path: Path):
    out = tmp_path / "run"
    lines = cli("run", config, "--out", out, "--set", "recipe.search.orders=all").out.splitlines()
    assert any("tested)" in line and "LD" in line for line in lines)
    told = cli("explain", out, "--round", "2", "--json").json
    assert told["search"]["exchanges"] == 1
    assert [one["chosen"] for one in told["search"]["tried"]].count(True) == 1
    assert "search: exchanges 1" in cli("explain", out, "--round", "2").out
    found = cli("report", out, "--text", "--json").json["search"]
    assert found["exchanges"] == 4
    assert sum(found["taken"].values()) == 4
    assert "per round" in cli("report", out, "--text").out
    assert cli("export", out, "--out", tmp_path / "rounds.csv").code == 0
    with (tmp_path / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["round"] for row in rows} == {"1", "2", "3", "4"}
    assert "exists" in one_line(cli("export", out, "--out", tmp_path / "rounds.csv"))


def test_a_run_without_a_search_says_nothing_of_one(cli: CommandLine, config: Path, tmp_path: Path):
    cli("run", config, "--out", tmp_path / "run", "--set", "recipe.name=prioritized")
    assert cli("report", tmp_path / "run", "--text", "--json").json["search"] is None
    assert cli("explain", tmp_path / "run", "--round", "1", "--json").json["search"]["tried"] == []


def test_one_criterion_is_said_to_have_nothing_to_search_for(cli: CommandLine, config: Path, tmp_path: Path):
    shown = cli("run", config, "--out", tmp_path / "run", "--set", "recipe.criteria=DS").out
    assert shown.count("there is nothing to search for") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("recipe.search.orders=nearest", "unknown value of recipe.search.orders 'nearest'"),
        ("recipe.search.judges=5", "`recipe.search.judges` was removed"),
        ("recipe.search.order=kendall", "unknown key 'recipe.search.order' (did you mean 'orders'?)"),
        ("task.validation=0.0", "set task.validation = 0.1"),
    ],
)
def test_mistakes_are_named(cli: CommandLine, config: Path, tmp_path: Path, setting: str, message: str):
    changes = ["--set", "recipe.search.orders=all", "--set", setting]
    assert message in one_line(cli("run", config, "--out", tmp_path / "run", *changes))
    assert not (tmp_path / "run").exists()
