"""Weights by hand: normalising, shares, notes, groups put together, how weights show themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import CB, DS, LD, Prioritized, Product, Recipe
from fedmerit.core.types import Note
from fedmerit.core.weights.weigh import (
    ClientWeight,
    Normalise,
    Weights,
    by_client,
    check_table,
    concat_groups,
    normalised,
    scale,
    shares,
    total_variation,
    weigh,
)
from fedmerit.errors import ConfigError, TableError, UnknownName


def test_shares_of_nothing_are_nothing():
    assert shares(np.zeros(3)).tolist() == [0, 0, 0]
    assert shares(np.array([1e308, 1e308])).tolist() == [0.5, 0.5]
    assert shares(np.array([0.2, 0.6])) == pytest.approx(np.array([0.25, 0.75]))


def test_half_the_difference_changes_hands():
    assert total_variation(np.array([0.5, 0.5]), np.array([0.75, 0.25])) == 0.25


@pytest.mark.parametrize(
    ("raw", "normalise", "said"),
    [
        (np.zeros((0, 1)), "sum", "one row per client"),
        (np.ones((2, 2)), "sum", "one row per client"),
        (np.ones(2), "sum", "one row per client"),
        (np.array([[1.0], [-0.1]]), "sum", "got -0.1 in row 1"),
        (np.array([[np.inf], [1.0]]), "sum", "got inf in row 0"),
        (np.array([[0.5], [1.5]]), "none", "got 1.5 in row 1"),
    ],
)
def test_tables_that_are_refused(raw: np.ndarray, normalise: Normalise, said: str):
    with pytest.raises(TableError, match=said):
        check_table(raw, ["DS"], normalise)


def test_degrees_up_to_one_need_no_normalising():
    check_table(np.array([[0.0], [1.0]]), ["DS"], "none")
    check_table(np.array([[5.0]]), ["DS"], "sum")
    with pytest.raises(UnknownName):
        check_table(np.ones((1, 1)), ["DS"], "loudest")  # type: ignore[arg-type]


def kinds(result: Weights) -> dict[str, str]:
    return {note.kind: note.text for note in result.notes}


def test_all_scores_zero_follow_the_fallback():
    raw = np.array([[1.0, 0.0], [0.0, 1.0]])
    even = weigh(raw, ["A", "B"], Product(), "max")
    assert even.weights.tolist() == [0.5, 0.5]
    assert kinds(even)["zero-scores"] == "every score is 0; fallback weights are used"
    by_rows = weigh(raw, ["A", "B"], Product(), "max", fallback=np.array([1.0, 3.0]))
    assert by_rows.weights.tolist() == [0.25, 0.75]
    kept = weigh(raw, ["A", "B"], Product(), "max", fallback=np.zeros(2))
    assert kept.weights.tolist() == [0, 0]
    assert kinds(kept)["zero-weights"] == "every score is 0; the model stays"


def test_updates_that_are_thrown_away_are_counted():
    result = weigh(np.array([[0.0], [1.0], [3.0]]), ["DS"], Prioritized())
    assert kinds(result) == {"zero-weights": "1 of 3 updates has weight 0 and is not used"}
    gated = weigh(np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]]), ["CB", "DS"], Prioritized())
    assert gated.weights.tolist() == [0, 1, 0]
    assert kinds(gated)["zero-weights"] == "2 of 3 updates have weight 0 and are not used"


def test_one_client_is_not_told_that_nothing_separates_it():
    assert weigh(np.array([[3.0, 2.0]]), ["DS", "LD"], Prioritized()).notes == ()


def test_what_separates_nobody_is_said():
    flat = kinds(weigh(np.array([[100.0], [101.0]]), ["DS"], Prioritized()))
    assert flat["flat-criterion"].startswith("DS is nearly the same (spread 0.25%) for all clients of the round")
    assert "empty-criterion" in kinds(weigh(np.array([[1.0, 0.0], [2.0, 0.0]]), ["DS", "CB"], Prioritized()))
    assert kinds(weigh(np.array([[0.48], [0.52]]), ["DS"], Prioritized())) == {}


def test_a_priority_that_does_nothing_is_said_where_there_is_one():
    raw = np.array([[1.0, 1.0], [3.0, 1.1]])
    said = kinds(weigh(np.tile(raw, (20, 1)), ["DS", "LD"], Prioritized(), "sum"))["idle-priority"]
    assert said.startswith("the priority has no effect: criteria after DS change only 0.0")
    assert said.endswith('set normalise = "max"')
    assert "idle-priority" not in kinds(weigh(np.array([[1.0], [3.0]]), ["DS"], Prioritized()))
    alike = kinds(weigh(np.array([[1.0, 1.0], [3.0, 1.0]]), ["DS", "LD"], Prioritized(), "max"))
    assert alike["idle-priority"].endswith("of the weight")
    assert "idle-priority" not in kinds(weigh(np.array([[1.0, 1.0], [3.0, 1.0]]), ["DS", "LD"], Product(), "max"))


@pytest.mark.parametrize("values", [[1.0], [-1.0, 1.0], [np.nan, 1.0], [[1.0], [1.0]]])
def test_a_score_of_ones_own_is_checked(values: list[float]):
    with pytest.raises(TableError, match="one finite number >= 0 per client"):
        weigh(np.ones((2, 1)), ["DS"], lambda table: np.array(values))


def weights_of(*values: float, uncapped: bool = False) -> Weights:
    column = np.array(values)
    note = Note("nobody", "all", "text")
    return Weights(
        column[:, None],
        column[:, None] / 10,
        column,
        column / column.sum(),
        (note,),
        column / 100 if uncapped else None,
    )


def test_groups_are_put_together_in_client_order():
    both = concat_groups([weights_of(1, 3), weights_of(5)], [np.array([0, 2]), np.array([1])])
    assert both.scores.tolist() == [1, 5, 3]
    assert both.weights.tolist() == [0.25, 1.0, 0.75]
    assert both.uncapped is None
    assert [note.text for note in both.notes] == ["group 1 of 2: text", "group 2 of 2: text"]
    capped = concat_groups(
        [weights_of(1, 3, uncapped=True), weights_of(5, uncapped=True)], [np.array([0, 2]), np.array([1])]
    )
    assert capped.uncapped.tolist() == [0.01, 0.05, 0.03]


def test_some_clients_alone():
    assert weights_of(1, 3).take([1]).scores.tolist() == [3]
    taken = weights_of(1, 3, uncapped=True).take([1])
    assert taken.uncapped.tolist() == [0.03]


def test_a_terminal_shows_eight_weights():
    assert repr(weights_of(*[1] * 8)).endswith("12.50%>")
    assert repr(weights_of(*[1] * 9)).endswith("11.11%, ...>")
    assert repr(weights_of(*[1] * 9)).count("11.11%") == 8


def test_a_notebook_shows_all():
    page = weights_of(1, 3)._repr_html_()
    assert "<th>criterion 1</th>" in page
    assert "<td>25.00%</td>" in page
    assert page.endswith("<p>text</p>")


def test_weights_are_told_client_by_client():
    first, second = by_client(weights_of(1, 3), ["DS"], [7, 9], {"samples": np.array([10, 30])})
    assert second == ClientWeight(9, {"samples": 30.0}, {"DS": 3.0}, {"DS": 0.3}, 3.0, 0.75, 0, None)
    assert (first.earned, first.group) == (0.25, 0)
    capped = by_client(weights_of(1, 3, uncapped=True), ["DS"], [7, 9], {}, np.array([4, 5]))
    assert [(one.group, one.earned, one.facts) for one in capped] == [(4, 0.01, {}), (5, 0.03, {})]


RAW = np.array([[1.0, 0.0, 4.0], [3.0, 0.0, 4.0]])
NAMES = ["DS", "LD", "CB"]
TABLES = arrays(np.float64, st.tuples(st.integers(2, 8), st.just(3)), elements=st.floats(0, 1000))


@pytest.mark.parametrize(
    ("how", "table"),
    [
        ("sum", [[0.25, 0.5, 0.5], [0.75, 0.5, 0.5]]),
        ("max", [[1 / 3, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ("minmax", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
        ("none", [[1.0, 0.0, 4.0], [3.0, 0.0, 4.0]]),
        (scale({"DS": 2, "CB": 16}), [[0.5, 0.0, 0.25], [1.0, 0.0, 0.25]]),
    ],
)
def test_columns_on_one_scale(how: Normalise, table: list[list[float]]):
    assert normalised(RAW, how, NAMES) == pytest.approx(np.array(table))


def test_small_spans_are_spans():
    assert normalised(np.array([[0.0], [0.5]]), "minmax").tolist() == [[0.0], [1.0]]
    assert normalised(np.array([[0.25], [0.5]]), "max").tolist() == [[0.5], [1.0]]


def test_values_above_their_bound_count_as_the_bound_and_are_noted():
    raw = np.array([[100.0, 5.0], [900.0, 20.0], [500.0, 5.0]])
    earned = weigh(raw, ["DS", "LD"], Prioritized(), scale({"DS": 500, "LD": 20}))
    assert earned.table.tolist() == [[0.2, 0.25], [1.0, 1.0], [1.0, 0.25]]
    assert earned.scores.tolist() == pytest.approx([0.2 + 0.2 * 0.25, 2.0, 1.25])
    (note,) = [note for note in earned.notes if note.kind == "scaled"]
    assert note.text == "1 of 3 values of DS are above its scale 500 and count as 500; the largest is 900"


@given(TABLES, TABLES)
def test_with_bounds_nothing_that_another_client_sends_changes_a_score(mine: np.ndarray, others: np.ndarray):
    bounds = scale({"DS": 500, "LD": 10})
    alone = weigh(mine[:1], NAMES, Prioritized(), bounds)
    together = weigh(np.concatenate([mine[:1], others]), NAMES, Prioritized(), bounds)
    assert together.scores[0] == alone.scores[0]


def test_degrees_need_no_bound_and_others_do():
    Recipe((CB, DS), normalise=scale({"DS": 500}))
    with pytest.raises(ConfigError, match=r"normalise = scale needs a bound of LD; set .* bounds = \{LD = 500\}"):
        Recipe((DS, LD), normalise=scale({"DS": 500}))


@pytest.mark.parametrize("bounds", [{"DS": 0.0}, {"DS": float("inf")}, {"DS": float("nan")}, {"DS": 5.0, "LD": 2.0}])
def test_wrong_bounds_are_refused(bounds: dict[str, float]):
    with pytest.raises(ConfigError, match="scale"):
        Recipe((DS,), normalise=scale(bounds))
