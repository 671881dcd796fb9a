"""STUDY.toml: what a plan and its grids say, and what they refuse so that rows stay comparable."""

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import UserError
from fedmerit.study.grid import edges, make_grid, parse_grid, point_name, points
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


MOMENTUM = {"recipe": {"name": "fedavg", "server": {"optimizer": "momentum"}}}
M = "recipe.server.optimizer.momentum"


def test_tables_within_tables_are_keys_with_dots():
    nested = {"train": {"lr": [0.1, 0.3]}, "recipe": {"server": {"optimizer": {"momentum": [0.5]}}}}
    assert make_grid(nested) == {"train.lr": (0.1, 0.3), "recipe.server.optimizer.momentum": (0.5,)}
    assert make_grid({"train.lr": [0.1, 0.3], "recipe.server.optimizer.momentum": [0.5]}) == make_grid(nested)


def test_the_command_line_names_values_without_quotes():
    grid = parse_grid(
        ["train.batch=8,full", "recipe.criteria=LD > DS,DS > LD", "recipe.search.steps=[[1, 0]],[[2, 0]]"]
    )
    assert (grid["train.batch"], grid["recipe.criteria"]) == ((8, "full"), ("LD > DS", "DS > LD"))
    assert grid["recipe.search.steps"] == ([[1, 0]], [[2, 0]])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "at least two points, such as train.lr=0.01,0.1; got no key"),
        (["train.lr"], "--grid needs KEY=VALUE,VALUE"),
        (["=3"], "--grid needs KEY=VALUE,VALUE"),
        (["train.lr="], "the grid of train.lr must have at least one value (got none)"),
        (["train.lr=0.1"], "got one: lr=0.1; set it without a grid"),
        (["train.lr=0.1,0.2", "train.lr=0.3"], "--grid train.lr was given twice"),
        (["train.lr=0.1,0.1"], "train.lr has 0.1 more than once"),
        (["run.seed=1,2"], "run.seed cannot be tuned, because the best seed is chance"),
        (["run.rounds=10,20"], "a grid can only set keys of [train] and [recipe], such as train.lr (got 'run.rounds')"),
        (["task.alpha=0.1,1"], "(got 'task.alpha'): points are compared in pairs, and share data"),
        (["lr=0.1,0.2"], "got 'lr'"),
        (["train.lr=" + ",".join(map(str, range(1, 1002)))], "at most 1,000 points (got 1,001)"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(texts: list[str], message: str):
    with pytest.raises(UserError) as caught:
        parse_grid(texts)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"train.lrr": [1, 2]}, "row 'a': unknown key 'train.lrr' (did you mean 'lr'?)"),
        ({"train.lr": [0.1, -1]}, "row 'a: lr=-1': train.lr: must be greater than 0"),
        ({"recipe.server.optimizer.momentum": [0.5, 1.0]}, "row 'a: momentum=1.0': recipe.server.optimizer.momentum"),
        ({"recipe.criteria": ["LD", "D"]}, "row 'a: criteria=D': recipe.criteria.0: unknown criterion"),
        ({"train.lr.x": [0.1, 0.2]}, "cannot set train.lr.x: 'lr' is a value, not a section"),
    ],
)
def test_a_point_that_is_no_configuration_is_refused(grid: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        make_plan({"seeds": 1, "base": MOMENTUM | {"train": {"lr": 0.1}}, "row": [{"name": "a", "tune": grid}]})
    assert message in str(caught.value)


def test_a_base_is_left_as_it_was():
    base = {"recipe": {"name": "fedavg", "server": {"optimizer": {"name": "momentum", "momentum": 0.5}}}}
    make_plan({"seeds": 1, "base": base, "row": [{"name": "a", "tune": {M: [0.1, 0.2]}}]})
    assert base["recipe"]["server"]["optimizer"] == {"name": "momentum", "momentum": 0.5}


def test_keys_are_called_by_their_last_part_where_that_tells_them_apart():
    point = {"recipe.server.optimizer.lr": 1.0, "train.lr": -2, "train.batch": "full"}
    assert point_name(point) == "recipe.server.optimizer.lr=1.0 train.lr=-2 batch=full"


@pytest.mark.parametrize(
    ("grid", "point", "at"),
    [
        ({"train.lr": [0.1, 0.2, 0.3]}, {"train.lr": 0.2}, {}),
        ({"train.lr": [0.3, 0.1, 0.2]}, {"train.lr": 0.3}, {"train.lr": "largest"}),
        ({"train.lr": [0.1, 0.2]}, {"train.lr": 0.1}, {"train.lr": "smallest"}),
        ({"train.lr": [1, 2]}, {"train.lr": 1}, {"train.lr": "smallest"}),
        ({"train.epochs": [1, 2]}, {"train.epochs": 1}, {}),  # nothing is below one epoch
        ({"train.epochs": [2, 4]}, {"train.epochs": 2}, {"train.epochs": "smallest"}),
        ({M: [0.0, 0.9]}, {M: 0.0}, {}),
        ({M: [0.0, 0.9]}, {M: 0.9}, {M: "largest"}),
        ({"train.batch": [8, "full"]}, {"train.batch": 8}, {}),
        ({"recipe.criteria.0.step": [True, False]}, {"recipe.criteria.0.step": True}, {}),
        (
            {"train.lr": [0.1], "train.epochs": [1, 2]},
            {"train.lr": 0.1, "train.epochs": 2},
            {"train.epochs": "largest"},
        ),
    ],
)
def test_an_edge_is_an_end_of_the_grid_that_could_be_further_out(
    grid: dict[str, Any], point: dict[str, Any], at: dict[str, str]
):
    assert edges(MOMENTUM, make_grid(grid), point) == at


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), min_size=1, max_size=3))
def test_points_are_all_combinations_once(values: list[list[int]]):
    grid = {f"train.k{i}": column for i, column in enumerate(values)}
    found = points(grid)
    assert len({point_name(point) for point in found}) == len(found)
    assert {tuple(point.values()) for point in found} == set(product(*values))
