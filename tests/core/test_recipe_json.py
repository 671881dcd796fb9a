"""Recipes as JSON: what is kept can be made again, and nothing else can."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedmerit import (
    CB,
    DS,
    LD,
    MW,
    OWA,
    ByCosine,
    Choquet,
    TopShare,
    Validated,
    cgsv,
    criterion,
    fedavg,
    fedval,
    ifca,
    m2f,
    prioritized,
)
from fedmerit.core.criteria.table import COMPUTATION, CRITERIA, SIMULATED_COMPUTATION, Attribute
from fedmerit.core.objectives import find_objective
from fedmerit.core.recipe_json import part_from_json, part_text, part_to_json, recipe_from_json
from fedmerit.core.recipes import RECIPES, private
from fedmerit.core.server.private_sum import AdaptiveClip, PrivateSum
from fedmerit.core.types import Family
from fedmerit.core.weights.weigh import scale
from fedmerit.errors import DataError

GATED = Validated(find_objective("parity:sex"), min_accuracy=0.6)
MADE = {name: make() for name, (make, _) in RECIPES.items()} | {
    "attribute": prioritized(CB, DS, MW, Attribute("Young"), normalise="max"),
    "every criterion": prioritized(*CRITERIA.values()),
    "choquet": prioritized(DS, LD, score=Choquet((0.4, 0.6), ((0, 1, 0.2),))),
    "owa": prioritized(DS, LD, score=OWA((0.25, 0.75))),
    "scale": prioritized(DS, CB, normalise=scale({"DS": 500})),
    "groups": m2f(COMPUTATION, SIMULATED_COMPUTATION, grouping=ByCosine(cut="silhouette"), reward=TopShare("max")),
    "gate": replace(fedval("accuracy", "parity:sex", gamma=(2, 1), rank="top", rho="1/K"), criteria=(GATED,)),
    "until": cgsv(2.0, until=3),
    "clusters": ifca(3, warmup_rounds=0),
    "private": private(
        prioritized(DS, normalise=scale({"DS": 500})), PrivateSum(1.1, fraction=0.1, clip=AdaptiveClip(0.5))
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_recipe_comes_back_as_it_was(name: str):
    recipe = MADE[name]
    text = part_to_json(recipe)
    assert part_from_json(text) == recipe_from_json(text) == recipe
    assert part_text(text) == repr(recipe)


@dataclass(frozen=True)
class Mine:
    power: float = 2.0

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return table[:, 0] ** self.power


def test_parts_of_a_users_own_are_shown_and_not_made():
    text = part_to_json(prioritized(DS, score=Mine()))
    assert json.loads(text)["score"] == {"is": f"{__name__}:Mine", "repr": "Mine(power=2.0)"}
    with pytest.raises(DataError, match="user-defined"):
        part_from_json(text)
    assert part_text(text).startswith("Recipe(criteria=(DS,), score=Mine(power=2.0), normalise='max'")


def test_a_criterion_of_a_users_own_with_a_known_name_is_not_taken_for_ours():
    @criterion("DS", Family.DATA, "mine", facts=["samples"])
    def mine(cohort, history):
        return cohort.facts["samples"]

    assert json.loads(part_to_json(mine))["is"] != "criterion"


@pytest.mark.parametrize("text", ["", "no JSON", '{"is": "os:system"}', '{"is": "DS", "x": 1}', "[" * 5000, '{"x": 1}'])
def test_what_is_not_a_part_is_refused(text: str):
    with pytest.raises(DataError):
        part_from_json(text)


def test_a_recipe_is_made_as_far_as_it_is_ours():
    """A user's own score is left at its default, a user's own criterion is a stand-in by name, the rest is kept."""

    @criterion("Mood", Family.DATA, "mine", facts=["samples"])
    def mood(cohort, history):
        return cohort.facts["samples"]

    made = recipe_from_json(part_to_json(prioritized(DS, mood, LD, score=Mine(), normalise="max")))
    assert (made.priority, made.score, made.normalise) == (("DS", "Mood", "LD"), fedavg().score, "max")
    with pytest.raises(DataError, match="'Mood' is user-defined and cannot be rebuilt"):
        made.criteria[1](None, None)  # type: ignore[arg-type]
    for text in ("", "3", part_to_json(ByCosine()), '{"is": "Recipe"}', "[]"):
        with pytest.raises(DataError, match="the text does not describe a recipe"):
            recipe_from_json(text)
