"""The device-aware recipe on real clients: what is asked, how often, and what the command line says of a search."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import CommandLine, SoftmaxLearner, one_line, random_split, small_task

from fedmerit import DS, LD, MW, Backtracking, Recipe, Run, Task, device_aware, federate
from fedmerit.errors import ConfigError

SIZES = (4, 40, 9, 25, 60, 14, 8, 31)


def task(validation: Sequence[int] = (5,) * 8, tests: Sequence[int] = (6,) * 8) -> Task:
    """Clients of unlike sizes, with validation rows."""
    made = small_task(SIZES, tests, SoftmaxLearner(lr=3.0, epochs=8))
    return Task(replace(made.federation, validation=random_split(validation, 3)), made.learner)


def recipe(normalise: str = "max", **settings: Any) -> Recipe:
    return device_aware(DS, LD, MW, search=Backtracking(**settings), normalise=normalise)


def run(rounds: int = 12, made: Task | None = None, workers: int = 1, **settings: Any) -> Run:
    return federate(made or task(), recipe(**settings), rounds=rounds, fraction=0.5, seed=2, workers=workers)


def columns(run: Run, *names: str) -> list[list[Any]]:
    return [[row[name] for name in names] for row in run.ledger.rounds()]


def test_a_search_tries_other_orders_and_settles_on_some():
    done = run()
    taken = [row["weighting"] for row in done.ledger.rounds()]
    assert len(set(taken)) > 1  # the data are such that the first order does not always do
    assert all(" > ".join(row["priority"]) == row["weighting"] for row in done.ledger.rounds())
    for row in done.ledger.rounds():
        tried = done.ledger.candidates(row["round"])
        assert [one.weighting for one in tried if one.chosen] == [row["weighting"]]
        assert {name for one in tried for name in (one.weighting, *one.same)} == set(recipe().weightings)


def test_orders_that_weigh_alike_are_not_asked_about():
    done = run(tolerance=1.0)
    assert columns(done, "exchanges", "evaluations", "quality") == [[0, 0, None]] * 12
    assert {row["weighting"] for row in done.ledger.rounds()} == {"DS > LD > MW"}
    assert all(len(done.ledger.candidates(row["round"])[0].same) == 5 for row in done.ledger.rounds())


def test_clients_without_rows_do_not_count():
    some = (5, 0, 0, 9, 0, 7, 0, 0)
    done = run(made=task(validation=some))
    row = done.ledger.rounds()[-1]
    assert row["quality"] == pytest.approx(round(row["quality"] * sum(some)) / sum(some))


@pytest.mark.parametrize(
    ("validation", "tests", "settings", "message"),
    [
        ((0,) * 8, (6,) * 8, {}, r"task\.validation = 0\.1"),
        ((5,) * 8, (0,) * 8, {"adjust_on": "test"}, "needs test rows of the clients"),
    ],
)
def test_what_cannot_be_asked_is_said_before_the_run(validation, tests, settings, message):
    with pytest.raises(ConfigError, match=message):
        run(made=task(validation, tests), **settings)


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
    lines = cli("run", config, "--out", out).out.splitlines()
    assert any("tested)" in line and "LD" in line for line in lines)
    told = cli("explain", out, "--round", "2", "--json").json
    assert told["search"]["exchanges"] == 1
    assert [one["chosen"] for one in told["search"]["tried"]].count(True) == 1
    assert "search: exchanges 1" in cli("explain", out, "--round", "2").out
    found = cli("report", out, "--text", "--json").json["search"]
    assert (found["exchanges"], sum(found["taken"].values())) == (4, 4)
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
        ("recipe.search.adjust_on=rows", "unknown value of recipe.search.adjust_on 'rows'"),
        ("recipe.search.judges=5", "`recipe.search.judges` was removed"),
        ("recipe.search.orders=all", "`recipe.search.orders` was removed"),
        ("task.validation=0.0", "set task.validation = 0.1"),
    ],
)
def test_mistakes_are_named(cli: CommandLine, config: Path, tmp_path: Path, setting: str, message: str):
    assert message in one_line(cli("run", config, "--out", tmp_path / "run", "--set", setting))
    assert not (tmp_path / "run").exists()
