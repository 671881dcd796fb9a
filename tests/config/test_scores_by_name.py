"""Scores by name: what cannot be made is refused with the key and the rule."""

from typing import Any

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
        ({"name": "owa"}, "owa needs `weights`"),
        ({"name": "owa", "weights": (1.0,)}, "weights has 1 values for 2 criteria"),
        ({"name": "owa", "weights": (0.5, 0.6)}, "recipe.score: weights of owa are >= 0 and sum to 1"),
        ({"name": "choquet"}, "choquet needs `shapley`"),
        ({"name": "choquet", "shapley": (1.0,)}, "shapley has 1 values for 2 criteria"),
        ({"name": "choquet", "shapley": (0.5, 0.5), "interaction": ((0, 2, 0.1),)}, "each pair once, as .i, j, value."),
        ({"name": "choquet", "shapley": (0.5, 0.5), "interaction": ((0, 1),)}, "interaction.0: must be a list of 3"),
        (
            {"name": "choquet", "shapley": (0.5, 0.5), "interaction": ((0.5, 1, 0.1),)},
            "interaction.0.0: must be a whole",
        ),
    ],
)
def test_a_score_that_cannot_be_made_is_refused(score: Any, message: str):
    with pytest.raises(UserError, match=message):
        make_score(score, ("DS", "CB"))
