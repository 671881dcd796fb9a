"""Scores by name: those that are written in words of the criteria, and what cannot be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmerit import UserError
from fedmerit.config.recipe import make_score


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("prioritised", r"unknown recipe.score 'prioritised' \(did you mean 'prioritized'\?\); valid: choquet, "),
        ({"name": 3}, r"recipe.score.name: must be text \(got 3\)"),
        ({"nane": "owa"}, r"unknown key 'recipe.score.nane'"),
        ({"name": "product", "rank": "median"}, "unknown value of recipe.score.rank 'median'"),
        ({"name": "prioritized", "top": 0.5}, '`top` needs rank = "top"'),
        ({"name": "weighted-mean", "weights": (1.0,)}, "weights has 1 values for 2 criteria"),
        ({"name": "topsis", "weights": (1.0,)}, "weights has 1 values for 2 criteria"),
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
        (
            {"name": "choquet", "capacity": {"DS": 0.4, "CB": 0.2}, "interaction": {"DS+CB": 0.1}},
            "interaction with shapley",
        ),
    ],
)
def test_a_score_that_cannot_be_made_is_refused(score: Any, message: str):
    with pytest.raises(UserError, match=message):
        make_score(score, ("DS", "CB"))


def test_a_capacity_names_criteria_in_any_order():
    score = make_score({"name": "choquet", "capacity": {"CB": 0.2, "DS": 0.5}}, ("DS", "CB"))
    assert score(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])) == pytest.approx([0.5, 0.2, 1])
    pairs = make_score({"name": "choquet", "shapley": (0.6, 0.4), "interaction": {"CB + DS": 0.2}}, ("DS", "CB"))
    assert pairs(np.array([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx([0.5, 0.3])
