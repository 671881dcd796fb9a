"""Grids: their points, what they refuse, and what lies at their edge."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import UserError
from fedmerit.study.grid import edges, make_grid, parse_grid, point_name, points
from fedmerit.study.plan import make_plan

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
    assert grid["train.batch"] == (8, "full")
    assert grid["recipe.criteria"] == ("LD > DS", "DS > LD")
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
        ({"recipe.limits.0.anchored": [True, False]}, {"recipe.limits.0.anchored": True}, {}),
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
