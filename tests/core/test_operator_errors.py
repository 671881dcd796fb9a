"""Operators and capacities that cannot be: each says the rule and what was received."""

from __future__ import annotations

import numpy as np
import pytest

from fedmerit import OWA, Choquet, UserError, WeightedMean, weigh
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import MOST, Linear, Power, QuantifierOWA

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "2\\*\\*m values; got 0"),
        ((0.0,), "2\\*\\*m values; got 1"),
        ((0.0, 0.5, 1.0), "2\\*\\*m values; got 3"),
        ((0.0, NAN, 0.5, 1.0), "finite"),
        ((0.1, 0.5, 0.5, 1.0), "0 for no criterion and 1 for all"),
        ((0.0, 0.5, 0.5, 0.9), "0 for no criterion and 1 for all"),
        ((0.0, 0.5, -0.1, 1.0), r"never falls .* coalition \[\] has 0, with criterion 1 only -0.1"),
        ((0.0, 0.6, 0.1, 0.5, 0.0, 0.6, 0.1, 1.0), r"coalition \[0\] has 0.6, with criterion 1 only 0.5"),
        ((0.0,) * 2**17, "1..16"),
    ],
)
def test_capacity_that_is_none(values: tuple[float, ...], message: str):
    with pytest.raises(UserError, match=message):
        Capacity(values)


@pytest.mark.parametrize(
    ("shapley", "interaction", "message"),
    [
        ((0.5, 0.6), {}, "got 0.0 and 1.1"),
        ((0.5, 0.5), {(0, 0): 0.1}, "two criteria of 0..1"),
        ((0.5, 0.5), {(0, 2): 0.1}, "two criteria of 0..1"),
        ((0.5, 0.5), {(0, 1): 0.1, (1, 0): 0.1}, "each pair once"),
        ((0.1, 0.9), {(0, 1): 0.3}, r"criterion 0: Shapley value 0.1 is below half of its interactions \(0.15\)"),
        ((0.1, 0.9), {(0, 1): -0.3}, "criterion 0"),
        ((0.5, NAN), {}, "finite"),
    ],
)
def test_two_additive_capacity_that_is_none(shapley, interaction, message: str):
    with pytest.raises(UserError, match=message):
        Capacity.two_additive(shapley, interaction)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OWA((0.5, 0.6)),
        lambda: OWA((1.5, -0.5)),
        lambda: OWA((NAN, 1.0)),
        lambda: OWA(()),
        lambda: WeightedMean((0.5, 0.4)),
        lambda: WeightedMean((2.0, -1.0)),
        lambda: QuantifierOWA(MOST, (0.0, 0.0)),
        lambda: QuantifierOWA(MOST, (1.0, -1.0)),
        lambda: QuantifierOWA(MOST, (1.0, NAN)),
        lambda: Power(0),
        lambda: Power(-1),
        lambda: Power(NAN),
        lambda: Power(float("inf")),
        lambda: Linear(0.8, 0.3),
        lambda: Linear(0.5, 0.5),
        lambda: Linear(-0.1, 0.5),
        lambda: Linear(0.5, 1.1),
        lambda: Linear(NAN, 0.5),
    ],
)
def test_operator_that_is_none(make):
    with pytest.raises(UserError, match="got"):
        make()


@pytest.mark.parametrize(
    "operator",
    [
        OWA((0.5, 0.5)),
        WeightedMean((0.5, 0.5)),
        QuantifierOWA(MOST, (1.0, 1.0)),
        Choquet(Capacity.additive((0.5, 0.5))),
    ],
)
def test_operator_for_another_number_of_criteria(operator):
    with pytest.raises(UserError, match="criteria"):
        operator(np.ones((2, 3)))


def test_a_capacity_at_the_edge_of_monotony_gives_no_negative_weight():
    capacity = Capacity.two_additive((0.15, 0.5, 0.35), {(0, 1): 0.1, (0, 2): 0.2})  # 0.15 = (0.1 + 0.2) / 2
    result = weigh(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), "abc", Choquet(capacity), "none")
    assert (result.weights >= 0).all()
    alone = weigh(np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]), "abc", Choquet(capacity), "none", np.array([1.0, 3.0]))
    assert alone.weights.tolist() == [0.25, 0.75]


def test_a_capacity_may_be_off_by_its_tolerance_and_no_more():
    assert Capacity((1e-9, 0.5, 0.5, 1.0)).values[0] == 1e-9
    assert Capacity((0.0, -1e-9, 1.0, 1.0)).values[1] == -1e-9
    assert Capacity.two_additive((0.0, 1.0), {(0, 1): 2e-9}).values[1] == -1e-9
    assert Capacity.two_additive((1e-9, 1 - 1e-9), {}).values[1] == 1e-9
    assert Capacity.two_additive((9e-10, 1 - 9e-10), {}).values[1] == 0, "less is rounding"
    for make in (
        lambda: Capacity((1.1e-9, 0.5, 0.5, 1.0)),
        lambda: Capacity((0.0, 0.5, 0.5, 1 + 1.1e-9)),
        lambda: Capacity((0.0, -1.1e-9, 1.0, 1.0)),
        lambda: Capacity.two_additive((0.0, 1.0), {(0, 1): 2.2e-9}),
        lambda: Capacity.two_additive((0.5, 0.5), {(-1, 1): 0.1}),
    ):
        with pytest.raises(UserError):
            make()
