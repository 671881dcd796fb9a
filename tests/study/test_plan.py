"""STUDY.toml: what a plan says, and what it refuses so that rows stay comparable."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers import CommandLine, one_line

from fedmerit import UserError
from fedmerit.study.plan import dump_plan, load_plan, make_plan

FEDAVG = {"name": "FedAvg", "recipe": {"name": "fedavg"}}
DIVERSE = {"name": "LD > DS", "recipe": {"name": "prioritized", "criteria": "LD > DS", "normalise": "max"}}
PLAN: dict[str, Any] = {
    "seeds": 3,
    "base": {"task": {"clients": 5}, "train": {"lr": 0.5, "epochs": 3}, "run": {"rounds": 4, "seed": 99}},
    "row": [FEDAVG, DIVERSE, {"name": "few", "train": {"epochs": 1}}],
}


def test_a_row_changes_what_it_names_and_nothing_else():
    plan = make_plan(PLAN)
    assert plan.seeds == (1, 2, 3)
    assert plan.against == "FedAvg"
    first, diverse, few = (plan.config(row, 2) for row in plan.rows)
    assert diverse.recipe.values["criteria"] == ["LD", "DS"]
    assert (few.train.epochs, few.train.lr) == (1, 0.5)
    assert few.recipe == first.recipe
    for config in (diverse, few):
        assert config.task == first.task
        assert config.run == first.run
    assert (first.run.seed, first.run.rounds) == (2, 4)


def test_a_base_may_be_a_configuration_beside_the_study(tmp_path: Path):
    (tmp_path / "study").mkdir()
    (tmp_path / "base.toml").write_text('[train]\nlr = 0.25\n[recipe]\nname = "prioritized"\ncriteria = ["LD"]\n')
    (tmp_path / "study/a.toml").write_text('seeds = [7]\nbase = "../base.toml"\n[[row]]\nname = "as the base"\n')
    plan = load_plan(tmp_path / "study/a.toml")
    config = plan.config(plan.rows[0], 7)
    assert (config.train.lr, config.recipe.values["criteria"]) == (0.25, ["LD"])


def test_what_is_kept_in_the_folder_is_the_same_study():
    plan = make_plan(PLAN | {"targets": [0.5], "baseline": "few"})
    assert make_plan(tomllib.loads(dump_plan(plan))) == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": [FEDAVG, DIVERSE | {"task": {"data": "mnist"}}]}, "row 'LD > DS' sets task.data: rows are compared"),
        ({"row": [FEDAVG | {"null": "noise"}]}, "row.0.null"),
        ({"row": [FEDAVG | {"run": {"rounds": 9}}]}, "row 'FedAvg' sets run"),
        ({"row": [FEDAVG | {"seed": 3}]}, "unknown key 'row.0.seed'; valid here: name, null, recipe, task, train"),
        ({"row": [FEDAVG, FEDAVG]}, "row names must differ from each other; got more than once: FedAvg"),
        ({"row": [{"name": "a > b"}, {"name": "A b"}]}, "as parts of file names, must differ"),
        ({"row": [{"name": "<>"}]}, "at least one letter or digit"),
        ({"row": [{"name": "a", "recipe": {"criteria": []}}]}, "row 'a': recipe.criteria: needs at least one"),
        ({"row": [{"name": "a", "train": {"lrr": 1}}]}, "row 'a': unknown key 'train.lrr' (did you mean 'lr'?)"),
        ({"row": [{"recipe": {}}]}, "row.0.name is required"),
        ({"row": []}, "at least one [[row]]"),
        ({"row": "FedAvg"}, "row: must be a list"),
        ({"seeds": 0}, "at least one seed"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": [1, 2, 1]}, "seeds must differ"),
        ({"seeds": [-1]}, "greater than or equal to 0"),
        ({"seeds": True}, "seeds"),
        ({"seeds": 10**9}, "at most 10,000 seeds"),
        ({"baseline": "fedavg"}, "unknown row as baseline 'fedavg' (did you mean 'FedAvg'?)"),
        ({"targets": [1.5]}, "targets"),
        ({"shares": [0]}, "shares"),
        ({"base": {"tsk": {}}}, "base: unknown key 'tsk' (did you mean 'task'?)"),
        ({"base": "none.toml"}, "no configuration file none.toml"),
        ({"base": 3}, "base"),
        ({"seed": 3}, "unknown key 'seed' (did you mean 'seeds'?); valid here: attack, base, baseline, name"),
    ],
)
def test_a_mistake_is_named(change: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        make_plan(PLAN | change)
    assert message in str(caught.value)


def test_a_study_has_ten_seeds_where_it_names_none():
    assert make_plan({"row": [FEDAVG]}).seeds == tuple(range(1, 11))


def test_a_file_for_another_command_names_that_command(cli: CommandLine, tmp_path: Path):
    config, study = tmp_path / "config.toml", tmp_path / "study.toml"
    config.write_text("[train]\nlr = 0.1\n")
    study.write_text('base = "config.toml"\n[[row]]\nname = "FedAvg"\n')
    wrong = [["compare", config, "--out", tmp_path / "a"], ["run", study, "--out", tmp_path / "a"], ["doctor", study]]
    for command in (*wrong, ["flower", "run", study, "--loopback"]):
        right = f"fedmerit run {config} --out DIR" if config in command else f"fedmerit compare {study} --out DIR"
        assert f"use `{right}`" in one_line(cli(*command))
