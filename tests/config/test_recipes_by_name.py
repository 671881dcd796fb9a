"""Recipes by name: each takes the keys that have an effect in it and no others, also through overrides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmerit import Backtracking, BoldestFirst, TopShare, UserError
from fedmerit.config.recipes import RECIPES, make_recipe
from fedmerit.config.schema import load_config, make_config
from fedmerit.core import recipes
from fedmerit.core.criteria.table import CB, DS, LD

KEYS = sorted({key for section in RECIPES.values() for key in section.model_fields})
VALIDATED = ["validated:accuracy", "validated:balanced_accuracy"]


def made(**recipe: Any) -> recipes.Recipe:
    return make_recipe(make_config({"recipe": recipe}).recipe)


@pytest.mark.parametrize(("name", "key"), [(n, k) for n, r in RECIPES.items() for k in KEYS if k not in r.model_fields])
def test_a_key_of_another_recipe_is_refused_by_name(name: str, key: str):
    others = ", ".join(sorted(other for other, section in RECIPES.items() if key in section.model_fields))
    takes = ", ".join(RECIPES[name].model_fields)
    with pytest.raises(UserError) as refused:
        make_config({"recipe": {"name": name, key: "anything"}})
    assert (
        str(refused.value) == f"recipe {name} does not take {key!r}; it takes: {takes}; recipes that take it: {others}"
    )


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UserError) as told:
        make_config({"recipe": {"normalise": "max", "strength": 2}, "train": {"lr": 0}, "task": {"partition": "idd"}})
    for part in ("take 'normalise'", "take 'strength'", "train.lr", "task.partition"):
        assert part in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"name": "priority"},
            r"unknown recipe 'priority' \(did you mean 'prioritized'\?\); valid: adaptive, agno",
        ),
        ({"name": ["fedavg"]}, "unknown recipe"),
        ({"priority": ["DS"]}, "recipe fedavg does not take 'priority'"),
        ({"name": "qffl", "strenght": 2}, r"unknown key 'recipe.strenght' \(did you mean 'strength'\?\)"),
        ({"name": "prioritized", "priority": "DS", "server": {}}, "recipe.server is for criteria named validated"),
        ({"name": "fedval", "priority": VALIDATED, "normalise": "max"}, "'none', 'minmax' or 'sum'"),
        ({"name": "fedval", "priority": VALIDATED, "score": "owa"}, "recipe.score: .*adds up.* for owa use"),
        ({"name": "fedval", "priority": VALIDATED, "score": {"quantifier": "most"}}, "unknown key 'recipe.score.quan"),
        ({"name": "device_aware", "search": {"among": [{"score": "sum"}]}}, "unknown score 'sum'"),
        ({"name": "device_aware", "search": {"among": [{"scores": 1}]}}, "unknown key 'recipe.search.among.0.scores'"),
        (
            {"name": "device_aware", "search": {"among": [{"score": {"name": "product", "shapley": 1}}]}},
            "score product",
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(recipe: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        made(**recipe)


def test_names_make_the_same_recipes_as_python():
    assert made() == made(name="fedavg") == recipes.fedavg()
    assert made(name="prioritized", priority="DS > LD", normalise="max") == recipes.prioritized(DS, LD, normalise="max")
    assert made(name="device_aware", priority="DS,LD") == recipes.device_aware(DS, LD)
    assert made(name="m2f") == recipes.m2f()
    assert made(name="fedval", priority=VALIDATED) == recipes.fedval("accuracy", "balanced_accuracy")
    weighted = {"weights": [2, 1], "rank": "borda"}
    assert made(name="fedval", priority=VALIDATED, score=weighted, normalise="minmax", server={"rho": 1}) == (
        recipes.fedval("accuracy", "balanced_accuracy", gamma=(2, 1), rank="borda", normalise="minmax", rho=1)
    )
    assert made(name="qffl", strength=2) == recipes.qffl(2)
    assert made(name="agnostic", strength=0.5) == recipes.agnostic(0.5)
    assert made(name="cgsv", beta=2, until=8) == recipes.cgsv(2, until=8)
    assert made(name="rffl", least=0.5, half_life=3) == recipes.rffl(0.5, 3)
    assert made(name="standalone") == recipes.standalone()
    assert made(name="finetuned", until=3) == recipes.finetuned(3)
    assert made(name="fedamp", sharpness=4, until=3) == recipes.fedamp(4, 3)
    assert made(name="cfl", at=0.4) == recipes.cfl(0.4)
    assert made(name="ifca", models=3, dealt=2) == recipes.ifca(3, 2)
    assert made(name="ditto", pull=1) == recipes.ditto(1)
    tempered = {"share": "tanh", "beta": 3, "floor": 0.1, "temperature": 2, "until": 4}
    assert made(name="m2f", reward=tempered) == recipes.m2f(
        reward=TopShare("tanh", floor=0.1, temperature=2, beta=3), until=4
    )


FILE = """
[task]
partition = "label-draws"
groups = [[0, 1], [2, 3]]
alpha = 2.0
clients = 4

[recipe]
name = "device_aware"
priority = ["DS", "LD"]
score = { name = "owa", quantifier = "most", rank = "borda" }
search = { orders = "all" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def test_another_recipe_drops_the_keys_of_the_file_that_it_does_not_take(file: Path):
    kept = load_config(file, ["recipe.name=prioritized"]).recipe.model_dump(exclude_unset=True)
    assert kept.keys() == {"name", "priority", "score"}
    assert load_config(file, ["recipe.name=fedavg"]).recipe == make_config({}).recipe
    both = ["recipe.name=fedavg", "recipe.name=prioritized", "recipe.normalise=max"]  # the last name counts
    assert load_config(file, both).recipe.model_dump(exclude_unset=True) == kept | {"normalise": "max"}


def test_another_score_or_partition_drops_what_it_does_not_take(file: Path):
    score = load_config(file, ["recipe.score.name=product"]).recipe.model_dump(exclude_unset=True)["score"]
    assert score == {"name": "product", "rank": "borda"}
    task = load_config(file, ["task.partition=dirichlet"]).task
    assert task.model_dump(exclude_unset=True) == {"partition": "dirichlet", "alpha": 2.0, "clients": 4}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["recipe.name=fedavg", "recipe.normalise=max"], "recipe fedavg does not take 'normalise'"),
        (["recipe.name=prioritized", "recipe.search.orders=all"], "recipe prioritized does not take 'search'"),
        (["recipe={name='fedavg',search={}}"], "recipe fedavg does not take 'search'"),
        (["recipe.strength=2"], "recipe device_aware does not take 'strength'"),
        (["recipe.score.name=product", "recipe.score.weights=[1, 1]"], "score product does not take 'weights'"),
        (["task.partition=iid", "task.alpha=0.3"], "partition iid does not take 'alpha'"),
        (["recipe.name=fedavgg"], r"unknown recipe 'fedavgg' \(did you mean 'fedavg'\?\)"),
    ],
)
def test_a_wrong_key_that_is_overridden_is_refused(file: Path, overrides: list[str], message: str):
    with pytest.raises(UserError, match=message):
        load_config(file, overrides)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"name": "m2f", "groups": {"by": "none", "cut": "quantile"}}, "recipe.groups: cut has no effect with by"),
        ({"name": "m2f", "reward": {"beta": 2}}, "recipe.reward: beta has no effect with share"),
        ({"name": "m2f", "reward": {"kind": "whole", "floor": 0.1}}, "recipe.reward: floor has no effect with kind"),
        ({"name": "m2f", "reward": {"kind": "whole", "share": "max"}}, "recipe.reward: share has no effect with kind"),
        ({"name": "device_aware", "search": {"confidence": 0.9}}, "recipe.search: confidence has no effect without"),
    ],
    ids=["groups", "altruism", "floor", "reward", "search"],
)
def test_a_key_that_another_makes_idle_is_refused(recipe: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        make_config({"recipe": recipe})


def test_steps_by_name_and_as_candidates():
    recipe = made(name="adaptive", priority=["CB", "DS"])
    assert recipe == recipes.adaptive(CB, DS)
    steps = [[2, 0.9], [1, 0]]
    search = {"steps": steps, "by": "loss", "judges": "round", "accept": 0, "count": "median"}
    assert made(name="device_aware", priority=["DS", "LD"], search=search).search == BoldestFirst(
        ((2.0, 0.9), (1.0, 0.0)), accept=0.0, count="median", among="orders"
    )
    assert made(name="adaptive", search={"judges": 5}).search == replace(recipes.ADAPTIVE, judges=5)
    assert made(name="adaptive", search={"steps": steps, "rungs": 1}).search.rungs == 1
    assert made(name="device_aware", priority=["DS"], search={"judges": 5}).search == Backtracking(judges=5)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"steps": []}, "steps has at least one pair"),
        ({"steps": [[0, 0.9]]}, "length is above 0; got 0.0"),
        ({"steps": [[1]]}, "recipe.search.steps"),
        ({"accept": 2}, "recipe.search.accept"),
        ({"by": "luck"}, "recipe.search.by"),
        ({"steps": [[1, 0]], "reference": "best_so_far"}, "reference has no effect where candidates are compared"),
        ({"judges": "round", "exchange": "lazy"}, "exchange has no effect where candidates are compared"),
    ],
)
def test_a_search_for_steps_that_cannot_be_is_refused(search: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        made(name="device_aware", priority=["DS", "LD"], search=search)
