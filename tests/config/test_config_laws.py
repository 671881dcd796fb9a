"""Law: a configuration that was dumped, as TOML or as the ledger's JSON, loads to the same."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fedmerit.config.aggregators import AGGREGATES
from fedmerit.config.recipes import RECIPES
from fedmerit.config.schema import Config, dump_config, make_config
from fedmerit.config.scores import SCORES
from fedmerit.config.steps import STEPS
from fedmerit.config.task import PARTITIONS

SHARE = st.floats(0.01, 0.9)
NUMBERS = st.lists(SHARE, min_size=1, max_size=3)
SCORE_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "rank": st.sampled_from(["borda", "squared", "exponential", "top"]),
    "top": SHARE,
    "weights": NUMBERS,
    "quantifier": st.sampled_from(["most", 2.0, [0.3, 0.8]]),
    "importances": NUMBERS,
    "capacity": st.dictionaries(st.sampled_from(["DS", "DS+CB"]), SHARE),
    "shapley": NUMBERS,
    "interaction": st.dictionaries(st.sampled_from(["DS+CB", "CB + LD"]), SHARE),
}
SCORE = st.sampled_from(sorted(SCORES)).flatmap(
    lambda name: st.fixed_dictionaries(
        {"name": st.just(name)},
        optional={key: SCORE_OPTIONS[key] for key in SCORES[name].model_fields if key != "name"},
    )
)
PRIORITY = st.lists(st.sampled_from(["DS", "LD", "CB", "validated:accuracy"]), unique=True)
WEIGHTING = st.fixed_dictionaries({}, optional={"priority": PRIORITY, "score": SCORE, "normalise": st.just("max")})
CUTTING = ("trimmed-mean", "multi-krum")
RECIPE_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "cap": st.floats(1, 9),
    "cap_group": SHARE,
    "claims": st.one_of(
        st.sampled_from(["median", "as-told"]),
        st.fixed_dictionaries({}, optional={"k": st.floats(1, 9), "enrolled": st.just([[0, 5.0]])}),
    ),
    "contributions": st.lists(st.sampled_from(["shapley", "banzhaf:f1", "cosine"]), unique=True),
    "beta": st.floats(0.1, 9),
    "half_life": st.floats(1, 99),
    "least": st.floats(0, 1, exclude_max=True),
    "until": st.integers(0, 9),
    "sharpness": st.floats(0, 99),
    "at": st.floats(0, 1),
    "pull": st.floats(0, 9),
    "priority": PRIORITY,
    "normalise": st.sampled_from(["none", "minmax"]),
    "scales": st.dictionaries(st.sampled_from(["DS", "LD"]), st.floats(1, 900)),
    "score": SCORE,
    "when_zero": st.sampled_from(["samples", "uniform", "keep"]),
    "strength": st.floats(0, 9),
    "models": st.integers(1, 5),
    "dealt": st.integers(0, 3),
    "share": st.just(0.3),
    "server": st.fixed_dictionaries(
        {}, optional={"rho": st.sampled_from([0.5, "1/K"]), "gate": SHARE, "marginal": st.booleans()}
    ),
    "search": st.fixed_dictionaries(
        {}, optional={"judges": st.integers(2, 9), "among": st.lists(WEIGHTING, max_size=2)}
    ),
    "step": st.sampled_from(sorted(STEPS)).flatmap(
        lambda name: st.fixed_dictionaries(
            {"name": st.just(name)},
            optional={
                key: st.booleans() if field.annotation is bool else SHARE
                for key, field in STEPS[name].model_fields.items()
                if key != "name"
            },
        )
    ),
    "aggregate": st.sampled_from(sorted(AGGREGATES)).flatmap(
        lambda name: st.fixed_dictionaries(
            {"name": st.just(name)},
            optional={} if name == "mean" else {"mix": st.just("nnm"), "share": SHARE.map(lambda share: share / 2)},
        ).filter(lambda table: table["name"] in CUTTING or "share" not in table or "mix" in table)
    ),
    "clip": st.fixed_dictionaries({}, optional={"norm": st.sampled_from(["median", 0.5, 3.0])}),
    "groups": st.fixed_dictionaries({}, optional={"cut": st.just("quantile"), "at": SHARE}),
    "reward": st.fixed_dictionaries({}, optional={"kind": st.sampled_from(["top", "whole"]), "sigma": SHARE}),
}
TASK_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "shards": st.integers(1, 5),
    "alpha": SHARE,
    "groups": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
    "size": st.integers(1, 99),
    "smallest": SHARE,
    "mix": SHARE,
    "attribute": st.sampled_from(["sex", "sex+race"]),
}
KINDS = st.fixed_dictionaries(
    {}, optional={"kinds": st.just({"poor": 0.5}), "clients": st.integers(1, 9), "sites": st.just({"a": [0, "b"]})}
)


def same_again(values: dict[str, Any]) -> None:
    config = make_config(values)
    assert make_config(tomllib.loads(dump_config(config))) == config
    assert make_config(json.loads(config.model_dump_json())) == config
    assert make_config(config.model_dump()) == config
    assert dump_config(make_config(tomllib.loads(dump_config(config)))) == dump_config(config)


@pytest.mark.parametrize("name", RECIPES)
@given(data=st.data())
def test_every_recipe_survives(name: str, data: st.DataObject):
    options = {key: RECIPE_OPTIONS[key] for key in RECIPES[name].model_fields if key != "name"}
    if name == "fedval":
        options["score"] = st.fixed_dictionaries({}, optional={"weights": NUMBERS, "rank": SCORE_OPTIONS["rank"]})
    recipe = data.draw(st.fixed_dictionaries({"name": st.just(name)}, optional=options))
    same_again({"recipe": recipe})


@pytest.mark.parametrize("partition", ["default", *PARTITIONS])
@given(data=st.data())
def test_every_partition_survives(partition: str, data: st.DataObject):
    options = {key: TASK_OPTIONS[key] for key in PARTITIONS.get(partition, TASK_OPTIONS)}
    task = data.draw(st.fixed_dictionaries({"partition": st.just(partition)}, optional=options))
    same_again({"task": task | data.draw(KINDS)})


def test_a_dump_holds_every_setting_that_counts():
    dumped = tomllib.loads(dump_config(make_config({"task": {"partition": "dirichlet"}})))
    assert dumped["recipe"] == {"name": "fedavg"}
    assert dumped["task"]["alpha"] == 0.5
    assert "shards" not in dumped["task"]
    assert Config().task == make_config(tomllib.loads(dump_config(Config()))).task
