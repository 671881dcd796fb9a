"""Laws over every registered part: it can be written in TOML, survives a dump, and is refused out of its range."""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given, reject

from fedmerit.config.recipe import SCORES, part_names
from fedmerit.config.schema import dump_config, make_config, make_recipe
from fedmerit.config.task import PARTITIONS
from fedmerit.core.parts import PARTS, Setting, Slot, settings
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.recipes import RECIPES
from fedmerit.errors import UserError

SHARE = st.floats(0.01, 0.9)
TWO = {"name": "prioritized", "criteria": ["DS", "CB"]}
PLACES: Mapping[Slot, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "criterion": ("criteria.0", lambda part: {"criteria": [part], "normalise": "max"}),
    "stage": ("stages.0", lambda part: {"stages": [part]}),
    "limit": ("limits.0", lambda part: {"limits": [part]}),
    "score": ("score", lambda part: TWO | {"score": part}),
    "normalise": ("normalise", lambda part: TWO | {"normalise": part}),
    "search": ("search", lambda part: TWO | {"search": part}),
    "models": ("models", lambda part: {"models": part}),
    "grouping": ("models.grouping", lambda part: {"models": {"name": "personal", "grouping": part}}),
    "reward": ("models.reward", lambda part: {"name": "m2f", "models": {"reward": part}}),
    "aggregator": ("server.aggregator", lambda part: {"server": {"aggregator": part}}),
    "optimizer": ("server.optimizer", lambda part: {"server": {"optimizer": part}}),
}
"""Slots that a recipe's table fills: the key, and a recipe that takes any part there."""
FULL_NAMES = {
    "contribution": "contribution:cosine",
    "validated": "validated:accuracy",
    "reputation": "reputation:contribution:cosine",
}
WEIGHTS = st.sampled_from([[0.75, 0.25], [1.0, 0.0]])
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "weights": WEIGHTS,
    "shapley": WEIGHTS,
    "interaction": st.sampled_from([[[0, 1, 0.1]], [[0, 1, -0.1]]]),
    "bounds": st.fixed_dictionaries({"DS": st.floats(1, 900)}, optional={"CB": SHARE}),
    "grouping": st.sampled_from(["one", {"name": "cosine", "cut": 0.5}]),
    "reward": st.sampled_from(["nothing", {"name": "top-share", "share": "tanh"}]),
}
EVERY = [(slot, name) for slot in PLACES for name in part_names(slot)]


def takes(slot: Slot, name: str) -> Mapping[str, Setting]:
    """The settings that a table of this part takes."""
    kind: Any = SCORES[name] if slot == "score" else PARTS[slot][name]
    fixed = ("objective", "method", "of") if slot == "criterion" else ("among",)
    return {key: one for key, one in settings(kind).items() if key not in fixed}


def numbers(one: Setting) -> st.SearchStrategy[Any]:
    """Numbers within the range of a setting."""
    low, high = 0.0, 9.0
    if one.interval:
        low = next((edge for edge in (one.interval.ge, one.interval.gt) if edge is not None), low)
        high = next((edge for edge in (one.interval.le, one.interval.lt) if edge is not None), high)
    if int in (one.type, *get_args(one.type)):
        return st.integers(int(low), 9)
    return st.floats(low, high, exclude_min=True, exclude_max=True)


def values(key: str, one: Setting) -> st.SearchStrategy[Any]:
    """Values of a setting as TOML has them."""
    if key == "of":
        return st.sampled_from(["median", {"name": "trimmed-mean", "share": 0.1}])
    if key in BY_NAME:
        return BY_NAME[key]
    if one.type is bool:
        return st.booleans()
    options = [st.sampled_from(one.choices)] if one.choices else []
    kinds = (one.type, *get_args(one.type))
    return st.one_of(*options, *([numbers(one)] if {int, float} & set(kinds) else []))


def drawn(data: st.DataObject, slot: Slot, name: str) -> dict[str, Any]:
    """A table of a part with any of its settings."""
    keys = takes(slot, name)
    strategies = {key: values(key, one) for key, one in keys.items()}
    must = {key: strategy for key, strategy in strategies.items() if keys[key].required}
    may = {key: strategy for key, strategy in strategies.items() if key not in must}
    full = FULL_NAMES.get(name, name)
    return data.draw(st.fixed_dictionaries({"name": st.just(full), **must}, optional=may))


def same_again(config: Any) -> None:
    text = dump_config(config)
    assert make_config(tomllib.loads(text)) == config
    assert make_config(json.loads(config.model_dump_json())) == config
    assert make_config(config.model_dump()) == config
    assert dump_config(make_config(tomllib.loads(text))) == text


@pytest.mark.parametrize(("slot", "name"), EVERY)
@given(data=st.data())
def test_every_part_survives_a_dump_and_the_ledger(slot: Slot, name: str, data: st.DataObject):
    try:
        config = make_config({"recipe": PLACES[slot][1](drawn(data, slot, name))})
    except UserError:  # settings that do not go together
        reject()
    same_again(config)
    recipe = make_recipe(config.recipe)
    assert make_recipe(make_config(tomllib.loads(dump_config(config))).recipe) == recipe
    assert part_from_json(part_to_json(recipe)) == recipe


def outside() -> Iterator[tuple[Slot, str, str, Any]]:
    """For every number that a part takes, values that it must refuse."""
    for slot, name in EVERY:
        for key, one in takes(slot, name).items():
            interval = one.interval
            if interval is None or one.type is bool:
                continue
            below = [interval.gt] if interval.gt is not None else [interval.ge - 1]
            above = [interval.lt] if interval.lt is not None else [interval.le + 1] if interval.le is not None else []
            for value in (*below, *above, math.nan, True, "many"):
                yield slot, name, key, value


@pytest.mark.parametrize(("slot", "name", "key", "value"), list(outside()))
def test_a_number_outside_its_range_is_refused_by_its_key(slot: Slot, name: str, key: str, value: Any):
    path, place = PLACES[slot]
    table = {"name": FULL_NAMES.get(name, name), key: value}
    with pytest.raises(UserError, match=rf"recipe\.{path}\.{key}\b.*{str(value)[:4]}"):
        make_config({"recipe": place(table)})


@pytest.mark.parametrize(("slot", "name"), EVERY)
def test_a_key_that_a_part_does_not_take_is_refused(slot: Slot, name: str):
    path, place = PLACES[slot]
    with pytest.raises(UserError, match=rf"recipe\.{path}.*lenght"):
        make_config({"recipe": place({"name": FULL_NAMES.get(name, name), "lenght": 1})})


@pytest.mark.parametrize("slot", [slot for slot in PLACES if slot != "criterion"])
def test_an_unknown_part_is_named_with_those_that_there_are(slot: Slot):
    path, place = PLACES[slot]
    with pytest.raises(UserError) as refused:
        make_config({"recipe": place("nosuch")})
    for word in (f"recipe.{path}".removesuffix(".0"), "nosuch", *part_names(slot)):
        assert word in str(refused.value)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives(name: str):
    config = make_config({"recipe": name})
    same_again(config)
    recipe = make_recipe(config.recipe)
    assert recipe == RECIPES[name][0]()
    assert part_from_json(part_to_json(recipe)) == recipe


TASK_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "alpha": SHARE,
    "groups": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
    "size": st.integers(1, 99) | st.tuples(st.integers(1, 9), st.integers(9, 99)).map(list),
    "attribute": st.sampled_from(["sex", "sex+race"]),
}
KINDS = st.fixed_dictionaries({}, optional={"kinds": st.just({"poor": 0.5}), "clients": st.integers(1, 9)})


@pytest.mark.parametrize("partition", ["default", *PARTITIONS])
@given(data=st.data())
def test_every_partition_survives(partition: str, data: st.DataObject):
    options = {key: TASK_OPTIONS[key] for key in PARTITIONS.get(partition, TASK_OPTIONS)}
    task = data.draw(st.fixed_dictionaries({"partition": st.just(partition)}, optional=options))
    same_again(make_config({"task": task | data.draw(KINDS)}))
