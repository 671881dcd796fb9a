"""Recipes as JSON: what is kept can be made again, and nothing else can."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from fedmerit import (
    CB,
    DS,
    LD,
    MW,
    ByCosine,
    Choquet,
    TopShare,
    WeightedMean,
    agnostic,
    cfl,
    cgsv,
    criterion,
    device_aware,
    ditto,
    fedamp,
    fedavg,
    fedval,
    finetuned,
    ifca,
    m2f,
    prioritized,
    qffl,
    rffl,
    standalone,
)
from fedmerit.core.criteria.table import COMPUTATION, CRITERIA, SIMULATED_COMPUTATION, Attribute, Family
from fedmerit.core.objectives import Gated, find_objective
from fedmerit.core.recipe_json import PARTS, part_from_json, part_text, part_to_json, recipe_from_json
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.search import Weighting
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import MOST, QuantifierOWA
from fedmerit.errors import DataError

RECIPES = {
    "fedavg": fedavg(),
    "prioritized": prioritized(CB, DS, MW, Attribute("Young"), normalise="max"),
    "every criterion": prioritized(*CRITERIA.values()),
    "choquet": prioritized(DS, LD, score=Choquet(Capacity.additive((0.4, 0.6)))),
    "owa": prioritized(DS, LD, score=QuantifierOWA(MOST, (1.0, 2.0))),
    "device_aware": device_aware(
        DS, LD, search=Backtracking(judges=3, among=(Weighting(("LD",), WeightedMean(), "max"),))
    ),
    "m2f": m2f(COMPUTATION, SIMULATED_COMPUTATION, grouping=ByCosine(cut="quantile"), reward=TopShare("max")),
    "fedval": fedval("accuracy", Gated(find_objective("parity:sex"), 0.6), gamma=(2, 1), rank="top", rho="1/K"),
    "qffl": qffl(2.0),
    "agnostic": agnostic(0.3),
    "cgsv": cgsv(2.0, until=3),
    "rffl": rffl(0.2),
    "standalone": standalone(),
    "finetuned": finetuned(5),
    "fedamp": fedamp(3.0, until=4),
    "cfl": cfl(0.4),
    "ifca": ifca(3, dealt=0),
    "ditto": ditto(0.5),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_comes_back_as_it_was(name: str):
    recipe = RECIPES[name]
    text = part_to_json(recipe)
    assert part_from_json(text) == recipe
    assert part_text(text) == repr(recipe)
    assert json.loads(text)["is"] == "Recipe"


@dataclass(frozen=True)
class Mine:
    power: float = 2.0

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return table[:, 0] ** self.power


def test_parts_of_a_users_own_are_shown_and_not_made():
    text = part_to_json(prioritized(DS, score=Mine()))
    assert json.loads(text)["score"] == {"is": f"{__name__}:Mine", "repr": "Mine(power=2.0)"}
    with pytest.raises(DataError, match="a user's own"):
        part_from_json(text)
    assert part_text(text).startswith("Recipe(criteria=(DS,), score=Mine(power=2.0), normalise='sum'")


def test_a_criterion_of_a_users_own_with_a_known_name_is_not_taken_for_ours():
    @criterion("DS", Family.DATA, "mine", facts=["samples"])
    def mine(cohort, history):
        return cohort.facts["samples"]

    assert json.loads(part_to_json(mine))["is"] != "criterion"


@pytest.mark.parametrize("text", ["", "no JSON", '{"is": "os:system"}', '{"is": "DS", "x": 1}', "[" * 5000, '{"x": 1}'])
def test_what_is_not_a_part_is_refused(text: str):
    with pytest.raises(DataError):
        part_from_json(text)


def test_every_frozen_part_of_the_house_can_be_named():
    assert {"Recipe", "Prioritized", "Backtracking", "ByCosine", "TopShare", "Validated"} <= set(PARTS)


def test_a_recipe_is_made_as_far_as_it_is_ours():
    """Its own score is left at its default, its own criterion is a stand-in by name, all else is as it was."""

    @criterion("Mood", Family.DATA, "mine", facts=["samples"])
    def mood(cohort, history):
        return cohort.facts["samples"]

    for name, recipe in RECIPES.items():
        assert recipe_from_json(part_to_json(recipe)) == recipe, name
    made = recipe_from_json(part_to_json(prioritized(DS, mood, LD, score=Mine(), normalise="max")))
    assert (made.priority, made.score, made.normalise) == (("DS", "Mood", "LD"), prioritized(DS).score, "max")
    with pytest.raises(DataError, match="'Mood' is a user's own and cannot be made"):
        made.criteria[1](None, None)  # type: ignore[arg-type]
    for text in ("", "3", part_to_json(ByCosine()), '{"is": "Recipe"}', "[]"):
        with pytest.raises(DataError, match="this is not a recipe"):
            recipe_from_json(text)
