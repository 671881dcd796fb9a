"""[recipe]: a named recipe with parts in place of its own makes what Python makes; another name drops old settings."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmerit import (
    CB,
    DS,
    LD,
    Backtracking,
    Cap,
    Choquet,
    Claims,
    Clip,
    Momentum,
    Recipe,
    Server,
    StepSearch,
    TopShare,
    UserError,
    scale,
)
from fedmerit.config.old_keys import OLD_KEYS, REMOVED_KEYS
from fedmerit.config.schema import load_config, make_config, make_recipe
from fedmerit.core import recipes
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.server.aggregators import NNM, CoordinateMedian, TrimmedMean

VALIDATED = ["validated:accuracy", "validated:balanced_accuracy"]
PYTHON = [
    ({}, recipes.fedavg()),
    ({"name": "prioritized", "criteria": "DS > LD", "normalise": "max"}, recipes.prioritized(DS, LD, normalise="max")),
    ({"name": "device_aware", "criteria": "DS,LD"}, recipes.device_aware(DS, LD)),
    ({"name": "adaptive", "criteria": ["CB", "DS"]}, recipes.adaptive(CB, DS)),
    ({"name": "fedval", "criteria": VALIDATED}, recipes.fedval("accuracy", "balanced_accuracy")),
    (
        {"name": "fedval", "criteria": VALIDATED, "score": {"weights": [2, 1], "rank": "borda"}, "normalise": "minmax"},
        recipes.fedval("accuracy", "balanced_accuracy", gamma=(2, 1), rank="borda", normalise="minmax"),
    ),
    (
        {"name": "fedval", "criteria": [{"name": VALIDATED[0], "rho": 1}]},
        recipes.fedval("accuracy", rho=1.0),
    ),
    ({"name": "qffl", "criteria": [{"name": "LossPower", "q": 2}]}, recipes.qffl(2)),
    ({"name": "agnostic", "criteria": [{"name": "Agnostic", "eta": 0.5}]}, recipes.agnostic(0.5)),
    ({"name": "cosine_rewards", "models": {"until": 8}}, recipes.cosine_rewards(until=8)),
    (
        {"name": "cosine_rewards", "criteria": [{"name": "reputation:contribution:cosine", "half_life": 3}]},
        replace(recipes.cosine_rewards(), criteria=(Reputation(Contribution("cosine"), half_life=3),)),
    ),
    ({"name": "finetuned", "models": {"until": 3}}, recipes.finetuned(3)),
    ({"name": "fedamp", "models": {"alpha": 4, "lam": 3}}, recipes.fedamp(4, lam=3)),
    ({"name": "cosine_rewards", "models": {"until": "all"}}, recipes.cosine_rewards()),
    ({"name": "ifca", "models": {"count": 3, "warmup_rounds": 2}}, recipes.ifca(3, 2)),
    ({"name": "ditto", "models": {"pull": 1}}, recipes.ditto(1)),
    (
        {"name": "m2f", "models": {"reward": {"share": "tanh"}, "until": 4}},
        recipes.m2f(reward=TopShare("tanh"), until=4),
    ),
    (
        {"stages": ["claims", {"name": "clip", "times": 2}, "contribution:cosine"]},
        Recipe((DS,), stages=(Claims(), Clip(times=2.0), Contribution("cosine"))),
    ),
    (
        {"limits": [{"name": "cap", "times": 3}, "cap"]},
        Recipe((DS,), limits=(Cap(3.0), Cap())),
    ),
    (
        {"server": {"aggregator": {"name": "nnm", "of": {"name": "trimmed-mean", "share": 0.3}, "share": 0.3}}},
        Recipe((DS,), server=Server(NNM(TrimmedMean(0.3), 0.3))),
    ),
    (
        {
            "server": {
                "aggregator": {"name": "nnm", "of": "median"},
                "optimizer": {"name": "momentum", "lr": 2},
            }
        },
        Recipe((DS,), server=Server(NNM(CoordinateMedian()), Momentum(lr=2.0))),
    ),
    ({"normalise": {"name": "scale", "bounds": {"DS": 500}}}, Recipe((DS,), normalise=scale({"DS": 500}))),
    ({"name": "prioritized", "criteria": ["DS", "LD"], "search": "steps"}, Recipe((DS, LD), search=StepSearch())),
    (
        {
            "name": "prioritized",
            "criteria": ["DS", "LD"],
            "score": {"name": "choquet", "shapley": [0.6, 0.4], "interaction": [[0, 1, 0.2]]},
        },
        Recipe((DS, LD), Choquet((0.6, 0.4), ((0, 1, 0.2),))),
    ),
    (
        {"name": "prioritized", "criteria": ["DS"], "search": "backtracking"},
        Recipe((DS,), search=Backtracking()),
    ),
]


def made(**recipe: Any) -> Recipe:
    return make_recipe(make_config({"recipe": recipe}).recipe)


@pytest.mark.parametrize(("table", "recipe"), PYTHON, ids=lambda value: str(value)[:60])
def test_a_table_makes_the_same_recipe_as_python(table: dict[str, Any], recipe: Recipe):
    assert made(**table) == recipe


@pytest.mark.parametrize("criteria", ["DS,CB", "DS > CB", " DS ,CB, ", ["DS", "CB"], ("DS", "CB")])
def test_criteria_may_be_written_as_text(criteria: Any):
    assert made(criteria=criteria).priority == ("DS", "CB")


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UserError) as told:
        make_config({"recipe": {"strength": 2}, "train": {"lr": 0}, "run": {"rounds": 0}, "task": {"partition": "idd"}})
    for part in ("recipe.strength", "train.lr", "run.rounds", "task.partition"):
        assert part in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"name": "priority"}, r"unknown recipe 'priority' \(did you mean 'prioritized'\?\); valid: adaptive, agno"),
        ({"name": "fedprox"}, "^FedProx is `train.prox = 0.01` with any recipe.$"),
        ({"name": "multi_krum"}, 'Krum is `recipe.server.aggregator = "multi-krum"`'),
        ({"name": ["fedavg"]}, "recipe.name"),
        ({"normalize": "max"}, r"unknown key 'recipe.normalize' \(did you mean 'normalise'\?\); valid here: criteria"),
        ({"normalise": "mean"}, r"unknown recipe.normalise 'mean'.*max, minmax, none, scale, sum"),
        ({"normalise": "none"}, r"values in 0..1 \(got DS\)"),
        ({"normalise": {"name": "scale", "bounds": {"CB": 1}}}, "criterion of the recipe, DS .got CB"),
        ({"when_zero": "stop"}, "unknown value of recipe.when_zero 'stop'"),
        ({"criteria": []}, "at least one criterion"),
        ({"criteria": ["DS", "DS"]}, r"each criterion may appear once \(got DS, DS\)"),
        (
            {"criteria": ["LD", "dataset"]},
            r"recipe.criteria.1: unknown criterion 'dataset'; did you mean one of 'dataset size' \(DS\)",
        ),
        ({"criteria": [3]}, "recipe.criteria.0"),
        ({"score": 3}, r"recipe.score: must be a name, or a table with a name \(got 3\)"),
        ({"stages": ["DS"]}, "recipe.stages.0: the server does not measure DS"),
        ({"stages": "claims"}, r"recipe.stages: must be a list \(got 'claims'\)"),
        ({"server": {"aggregator": "private-sum"}}, r"private-sum cannot be named here; set \[privacy\]"),
        ({"server": {"optimizer": {"learning_rate": 2}}}, "did you mean 'recipe.server.optimizer.lr'"),
        ({"server": "momentum"}, "recipe.server: must be a table such as"),
        ({"server": {"aggregator": {"name": "median", "share": 0.3}}}, "median does not take 'share'.*trimmed-mean"),
        ({"name": "m2f", "server": {"aggregator": "median"}}, "personal needs the weighted mean"),
        ({"models": 3}, r"recipe.models: must be a name, or a table with a name \(got 3\)"),
        ({"search": {"name": "steps", "steps": [[1]]}}, "`recipe.search.steps` was removed"),
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_is_refused(recipe: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        made(**recipe)


@pytest.mark.parametrize(
    "old", [key for key in OLD_KEYS if key.startswith("recipe.") and key.count(".") == 1 and "=" not in key]
)
def test_an_old_key_is_answered_with_the_new_one(old: str):
    with pytest.raises(UserError, match="is now"):
        made(**{old.removeprefix("recipe."): "anything"})


@pytest.mark.parametrize("old", REMOVED_KEYS)
def test_a_removed_key_is_answered_with_what_to_use_instead(old: str):
    """In the recipe that took the key."""
    key, _, value = old.partition("=")
    slot, setting = key.split(".")[1], key.rpartition(".")[2]
    name = {"search": "device_aware", "models": "m2f"}.get(slot, "prioritized")
    overrides = [f"recipe.name={name}", f"{key}={value or 1}"]
    if slot in ("criteria", "limits", "stages") and not value:
        part = {"limits": "cap", "stages": "claims"}.get(slot, "reputation:MW")
        overrides[1] = f'recipe.{slot}=[{{name = "{part}", {setting} = 1}}]'
    if slot == "limits" and value:
        overrides[1] = f'recipe.limits=["{value}"]'
    if slot == "score":
        overrides.insert(1, "recipe.score.name=owa")
    with pytest.raises(UserError, match=f"was removed; {re.escape(REMOVED_KEYS[old])}"):
        load_config(None, overrides)


FILE = """
[task]
partition = "label-draws"
groups = [[0, 1], [2, 3]]
alpha = 2.0
clients = 4

[recipe]
name = "device_aware"
criteria = ["DS", "LD"]
score = { name = "owa", weights = [0.8, 0.2], rank = "borda" }
search = { tolerance = 0.0 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def test_another_name_drops_the_settings_of_the_one_before(file: Path):
    whole = load_config(file).recipe.values
    assert load_config(file, ["recipe.name=device_aware"]).recipe.values == whole
    assert load_config(file, ["recipe.name=prioritized"]).recipe.values == {"name": "prioritized"}
    assert load_config(file, ["recipe=fedavg"]).recipe == make_config({}).recipe
    both = ["recipe.name=fedavg", "recipe.name=prioritized", "recipe.normalise=max"]  # the last name counts
    assert load_config(file, both).recipe.values == {"name": "prioritized", "normalise": "max"}
    assert load_config(file, ["recipe.score.name=product"]).recipe.values == whole | {"score": "product"}
    task = load_config(file, ["task.partition=dirichlet"]).task
    assert task.model_dump(exclude_unset=True) == {"partition": "dirichlet", "alpha": 2.0, "clients": 4}


def test_overrides_reach_into_parts():
    overrides = ["recipe.server.aggregator.name=trimmed-mean", "recipe.server.aggregator.share=0.3"]
    assert make_recipe(load_config(None, overrides).recipe).server.aggregator == TrimmedMean(0.3)
    bare = ["recipe.server.optimizer=momentum", "recipe.server.optimizer.lr=2"]
    assert make_recipe(load_config(None, bare).recipe).server.optimizer == Momentum(lr=2.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["recipe.score.name=product", "recipe.score.weights=[1, 1]"], "product does not take 'weights'"),
        (["task.partition=iid", "task.alpha=0.3"], "partition iid does not use 'alpha'"),
        (["recipe.name=fedavgg"], r"unknown recipe 'fedavgg' \(did you mean 'fedavg'\?\)"),
    ],
)
def test_a_wrong_key_that_is_overridden_is_refused(file: Path, overrides: list[str], message: str):
    with pytest.raises(UserError, match=message):
        load_config(file, overrides)
