"""normalise = "scale": public bounds instead of what the other clients of a round have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit.config.recipes import RECIPES, make_recipe
from fedmerit.config.sections import validate
from fedmerit.core.criteria.table import CB, DS, LD
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.recipes import prioritized
from fedmerit.core.weights.scales import bounds_of
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import weigh
from fedmerit.errors import ConfigError, TableError

BOUNDS = (500.0, 10.0, 1.0)
TABLES = arrays(np.float64, st.tuples(st.integers(2, 8), st.just(3)), elements=st.floats(0, 1000))


def test_values_are_divided_by_their_bounds_and_clipped_to_one() -> None:
    raw = np.array([[100.0, 5.0], [900.0, 20.0]])
    earned = weigh(raw, ["DS", "LD"], Prioritized(), "scale", scales=[500.0, 10.0])
    assert earned.table.tolist() == [[0.2, 0.5], [1.0, 1.0]]
    assert earned.scores.tolist() == pytest.approx([0.2 + 0.2 * 0.5, 2.0])


def test_what_is_above_its_scale_is_counted_and_said() -> None:
    earned = weigh(np.array([[100.0], [900.0], [700.0]]), ["DS"], Prioritized(), "scale", scales=[500.0])
    (note,) = [note for note in earned.notes if note.kind == "scaled"]
    assert note.text == "2 of 3 values of DS are above its scale 500 and count as 500; the largest is 900"


@given(TABLES, TABLES)
def test_nothing_that_another_client_sends_changes_a_score(mine: np.ndarray, others: np.ndarray) -> None:
    names = ["DS", "LD", "CB"]
    alone = weigh(mine[:1], names, Prioritized(), "scale", scales=BOUNDS)
    together = weigh(np.concatenate([mine[:1], others]), names, Prioritized(), "scale", scales=BOUNDS)
    assert together.scores[0] == alone.scores[0]


def test_degrees_need_no_scale_and_others_do() -> None:
    recipe = Recipe((CB, DS), normalise="scale", scales=(("DS", 500.0),))
    assert bounds_of(recipe.scales, ("DS", "CB")) == (500.0, 1.0)
    with pytest.raises(ConfigError, match=r"LD has none; set recipe.scales = \{LD = 500\}"):
        Recipe((DS, LD), normalise="scale", scales=(("DS", 500.0),))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"scales": {"DS": 0}, "normalise": "scale"}, "recipe.scales: .*greater than 0"),
        ({"scales": {"DS": float("inf")}, "normalise": "scale"}, "recipe.scales: .*finite"),
        ({"scales": {"DS": 5}}, "scales has no effect without normalise"),
        ({"scales": {"DS": 5, "LD": 2}, "normalise": "scale"}, "scales are of criteria of the recipe, DS; got LD"),
        ({"normalise": "scale"}, "DS has none"),
    ],
)
def test_wrong_scales_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_recipe(validate(RECIPES["prioritized"], {"priority": "DS"} | keys, "recipe"))


def test_a_recipe_of_python_refuses_a_scale_of_zero() -> None:
    with pytest.raises(ConfigError, match="a scale is the largest value that counts, above 0; got 0 for DS"):
        prioritized(DS, normalise="scale", scales={"DS": 0})
    with pytest.raises(TableError, match="a bound for each of 1 columns"):
        weigh(np.ones((2, 1)), ["DS"], Prioritized(), "scale")


def test_scales_are_kept_with_the_recipe() -> None:
    recipe = prioritized(DS, CB, normalise="scale", scales={"DS": 500.0})
    assert part_from_json(part_to_json(recipe)) == recipe
