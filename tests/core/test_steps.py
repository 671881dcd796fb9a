"""The server's steps: by hand, against torch's optimizers, in a whole round, and refused where they make no sense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import fedavg, m2f
from fedmerit.core.collect.selection import Uniform
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.round import play
from fedmerit.core.server.optimizers import (
    Adagrad,
    Adam,
    Aggregate,
    Extrapolated,
    HeavyBall,
    Momentum,
    Plain,
    Step,
    Yogi,
    coefficients_of,
    mix,
)
from fedmerit.core.state import State
from fedmerit.errors import ConfigError

STEPS: list[Step] = [Plain(), Momentum(0.5, 2.0), Momentum(nesterov=True), Adam(), Yogi(), Adagrad(), Extrapolated()]


def walk(step: Step, updates: np.ndarray, start: np.ndarray) -> np.ndarray:
    model, parts = start, {}
    for index, update in enumerate(updates, start=1):
        model, parts = step(model, Aggregate(update, float(np.dot(update, update))), parts, index)
        assert model.dtype == np.float32
        assert all(part.dtype == np.float32 and part.shape == model.shape for part in parts.values())
    return model


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("carry", "length"), [(0.9, 1.0), (0.5, 0.3), (0.0, 2.0)])
def test_momentum_is_torchs_on_the_pseudo_gradient(carry: float, length: float, nesterov: bool):
    import torch

    if nesterov and not carry:
        return  # torch refuses it: there is nothing to look ahead by
    updates = np.random.default_rng(1).normal(size=(6, 20)).astype(np.float32)
    weights = torch.zeros(20, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=length, momentum=carry, nesterov=nesterov)
    for update in updates:
        weights.grad = -torch.from_numpy(update)
        optimizer.step()
    ours = walk(Momentum(carry, length, nesterov), updates, np.zeros(20, np.float32))
    np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_adagrad_is_torchs_on_the_pseudo_gradient():
    import torch

    updates = np.random.default_rng(1).normal(size=(6, 20)).astype(np.float32)
    weights = torch.zeros(20, requires_grad=True)
    optimizer = torch.optim.Adagrad([weights], lr=0.1, eps=1e-3)
    for update in updates:
        weights.grad = -torch.from_numpy(update)
        optimizer.step()
    ours = walk(Adagrad(0.1), updates, np.zeros(20, np.float32))
    np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_extrapolation_by_hand():
    """Updates (1, 1) and (1, -1): the mean is (1, 0), their mean square 2, and 2 / (2 * 1) = 1; with 6 it is 3."""
    step, zero = Extrapolated(0.0), np.zeros(2, np.float32)
    mean = np.array([1.0, 0.0], np.float32)
    assert step(zero, Aggregate(mean, 2.0))[0].tolist() == [1, 0]
    assert step(zero, Aggregate(mean, 6.0))[0].tolist() == [3, 0]
    assert step(zero, Aggregate(zero, 0.0))[0].tolist() == [0, 0]


@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(values=st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4))
def test_a_first_step_never_goes_against_the_aggregate(step: Step, values: list[float]):
    update = np.array(values, np.float32)
    moved, _ = step(np.zeros(4, np.float32), Aggregate(update, float(np.dot(update, update))))
    assert (moved * np.sign(update) >= 0).all()
    assert np.isfinite(moved).all()


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_a_recipe_with_a_step_keeps_what_it_remembers_and_comes_back_from_json(step: Step):
    recipe = replace(fedavg(), step=step)
    assert part_from_json(part_to_json(recipe)) == recipe
    updates = np.array([[1, 0], [0, 2], [4, 4]], dtype=np.float32)
    fleet = CannedFleet(updates, [{"samples": n} for n in (10, 30, 60)])
    state = State(np.ones(2, np.float32))
    for _ in range(3):
        state, _ = play(state, recipe, fleet, selection=Uniform(1), seed=0, evaluate=False)
    mean, square = np.array([2.5, 3.0], np.float32), 0.1 * 1 + 0.3 * 4 + 0.6 * 32
    model, parts = np.ones(2, np.float32), {}
    for index in (1, 2, 3):
        model, parts = step(model, Aggregate(mean, square), parts, index)
    np.testing.assert_allclose(state.model, model, rtol=1e-6)
    assert set(state.parts) == set(parts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Momentum(carry=1.0), "carry"),
        (lambda: Momentum(length=0.0), "length"),
        (lambda: Momentum(length=float("nan")), "length"),
        (lambda: Adam(length=-1.0), "length"),
        (lambda: Adam(beta2=1.0), "beta"),
        (lambda: Yogi(tau=0.0), "tau"),
        (lambda: Extrapolated(epsilon=float("inf")), "epsilon"),
        (lambda: replace(m2f(), step=Momentum()), "personal"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str):
    with pytest.raises(ConfigError, match=message):
        make()


def test_steps_that_are_sums_name_their_coefficients():
    assert coefficients_of(Plain()) == (1, 0)
    assert coefficients_of(HeavyBall(2.0, 0.5)) == (2, 0.5)
    assert coefficients_of(Momentum()) is None
    assert HeavyBall(2.0, 0.5).reach == 4


def test_a_mixture_adds_only_what_counts():
    """A coefficient of 0 adds nothing, whatever is there; one of 1 adds the vector itself."""
    start, wild = np.ones(2, np.float32), np.array([np.inf, np.nan], np.float32)
    assert mix(start, [wild, start], [0.0, 1.0]).tolist() == [2, 2]
    assert mix(start, [start, 2 * start], [2.0, 0.5]).tolist() == [4, 4]


def test_a_square_of_zero_and_no_epsilon_is_the_plain_step():
    zero, update = np.zeros(2, np.float32), np.full(2, 0.5, np.float32)
    assert Extrapolated(0.0)(zero, Aggregate(zero, 5.0))[0].tolist() == [0, 0]
    assert Extrapolated(1.0)(zero, Aggregate(update, 9.0))[0] == pytest.approx(update * 9 / 3)


def test_yogi_and_adam_by_hand():
    """From m = 1, v = 4 with an update of 1 and betas 0.5: m = 1; Adam's v = 2.5, Yogi's 4 - 0.5 = 3.5."""
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    known = {"first": one, "second": 4 * one}
    model, parts = Yogi(1.0, 0.5, 0.5, 0.1)(zero, Aggregate(one), known, 3)
    assert (parts["first"][0], parts["second"][0]) == (1, 3.5)
    assert model[0] == pytest.approx(1 / (np.sqrt(3.5) + 0.1))
    model, parts = Adam(1.0, 0.5, 0.5, 0.1, correct=False)(zero, Aggregate(one), known, 3)
    assert (parts["first"][0], parts["second"][0]) == (1, 2.5)
    assert model[0] == pytest.approx(1 / (np.sqrt(2.5) + 0.1))
    corrected, _ = Adam(1.0, 0.5, 0.5, 0.1)(zero, Aggregate(one), known, 3)
    assert corrected[0] == pytest.approx(model[0] * np.sqrt(1 - 0.5**4) / (1 - 0.5**4))
