"""Scores by name: each takes its own options, and what cannot be made is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmerit import UserError
from fedmerit.config.schema import PrioritizedConfig, validate
from fedmerit.config.scores import SCORES, ChoquetScore, make_score

KEYS = sorted({key for section in SCORES.values() for key in section.model_fields})


def recipe_with(score: Any) -> PrioritizedConfig:
    return validate(PrioritizedConfig, {"score": score}, within="recipe")


@pytest.mark.parametrize(("name", "key"), [(n, k) for n, s in SCORES.items() for k in KEYS if k not in s.model_fields])
def test_a_key_of_another_score_is_refused_by_name(name: str, key: str):
    others = ", ".join(sorted(other for other, section in SCORES.items() if key in section.model_fields))
    takes = ", ".join(SCORES[name].model_fields)
    with pytest.raises(UserError) as refused:
        recipe_with({"name": name, key: 1})
    assert f"score {name} does not take {key!r}; it takes: {takes}; scores that take it: {others}" in str(refused.value)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ({"name": "prioritised"}, r"unknown score 'prioritised' \(did you mean 'prioritized'\?\); valid: choquet, "),
        ("prioritised", "unknown score 'prioritised'"),
        ({"name": 3}, "unknown score '3'"),
        ({"nane": "owa"}, r"unknown key 'recipe.score.nane' \(did you mean 'name'\?\)"),
        ({"name": "owa", "rank": "median"}, "recipe.score.rank: input should be"),
        ({"name": "prioritized", "top": 0.5}, 'top goes with rank = "top"'),
        ({"name": "weighted-mean", "weights": (1.0,)}, "weights has 1 values for 2 criteria"),
        ({"name": "owa"}, "either weights .* or a quantifier"),
        ({"name": "owa", "weights": (0.5, 0.5), "quantifier": "most"}, "either weights .* or a quantifier"),
        ({"name": "owa", "weights": (0.5, 0.5), "importances": (1.0, 1.0)}, "importances with a quantifier"),
        ({"name": "owa", "quantifier": "almost"}, "unknown quantifier 'almost'.*at-least-half"),
        ({"name": "owa", "quantifier": "most", "importances": (1.0,)}, "importances has 1 values for 2 criteria"),
        ({"name": "choquet"}, "either a capacity, or shapley"),
        ({"name": "choquet", "shapley": (1.0,)}, "shapley has 1 values for 2 criteria"),
        ({"name": "choquet", "shapley": (0.5, 0.5), "interaction": {"DS+CX": 0.1}}, "'CX'.*valid: CB, DS"),
        ({"name": "choquet", "shapley": (0.5, 0.5), "interaction": {"DS": 0.1}}, "pairs of criteria"),
        ({"name": "choquet", "capacity": {"DS": 0.4}}, "'CB' is missing"),
        ({"name": "choquet", "capacity": {"DS": 0.4, "CB": 0.2}, "interaction": {}}, "interaction with shapley"),
    ],
)
def test_a_score_that_cannot_be_made_is_refused(score: Any, message: str):
    with pytest.raises(UserError, match=message):
        make_score(recipe_with(score).score, ("DS", "CB"))


def test_a_capacity_speaks_of_criteria_by_name_in_any_order():
    score = make_score(ChoquetScore(capacity={"CB": 0.2, "DS": 0.5}), ("DS", "CB"))
    assert score(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])) == pytest.approx([0.5, 0.2, 1])
    pairs = ChoquetScore(shapley=(0.6, 0.4), interaction={"CB + DS": 0.2})
    assert make_score(pairs, ("DS", "CB"))(np.array([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx([0.5, 0.3])
