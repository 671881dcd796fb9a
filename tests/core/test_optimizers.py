"""Server optimizers: by hand, against torch's optimizers, and in whole rounds."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import CannedFleet
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import fedavg
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.host import Host
from fedmerit.core.round import run_round
from fedmerit.core.server.optimizers import Adam, FedExP, HeavyBall, Momentum, Yogi
from fedmerit.core.server.server import SGD, Aggregate, MixingOptimizer, Server, ServerOptimizer, mix
from fedmerit.core.state import State
from fedmerit.core.types import EMPTY

STEPS: list[ServerOptimizer] = [
    *(SGD(), SGD(0.5), Momentum(0.5, 2.0), HeavyBall(2.0, 0.5)),
    *(Adam(), Yogi(), FedExP()),
]


def walk(step: ServerOptimizer, updates: np.ndarray, start: np.ndarray) -> np.ndarray:
    model, own = start, EMPTY
    for index, update in enumerate(updates, start=1):
        model, own = step(model, Aggregate(update, float(np.dot(update, update))), own, index)
        assert all(vector.dtype == np.float32 and vector.shape == start.shape for vector in (model, *own.values()))
    return model


@pytest.mark.parametrize(
    ("step", "name", "settings"),
    [
        (Momentum(0.9, 1.0), "SGD", {"lr": 1.0, "momentum": 0.9}),
        (Momentum(0.5, 0.3), "SGD", {"lr": 0.3, "momentum": 0.5}),
        (Momentum(0.0, 2.0), "SGD", {"lr": 2.0}),
    ],
    ids=repr,
)
def test_it_is_torchs_on_the_pseudo_gradient(step: ServerOptimizer, name: str, settings: dict[str, float]):
    import torch

    updates = np.random.default_rng(1).normal(size=(6, 20)).astype(np.float32)
    weights = torch.zeros(20, requires_grad=True)
    optimizer = getattr(torch.optim, name)([weights], **settings)
    for update in updates:
        weights.grad = -torch.from_numpy(update)
        optimizer.step()
    ours = walk(step, updates, np.zeros(20, np.float32))
    np.testing.assert_allclose(ours, weights.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_one_lr_makes_a_heavy_ball_momentum():
    updates, start = np.random.default_rng(1).normal(size=(6, 20)).astype(np.float32), np.zeros(20, np.float32)
    np.testing.assert_allclose(
        walk(HeavyBall(0.3, 0.5), updates, start), walk(Momentum(0.5, 0.3), updates, start), rtol=1e-5, atol=1e-6
    )


def test_fedexp_keeps_the_model_if_updates_cancel():
    zero = np.zeros(2, np.float32)
    assert FedExP()(zero, Aggregate(zero, 5.0))[0].tolist() == [0, 0]


@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(values=st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4))
def test_a_first_step_never_goes_against_the_aggregate(step: ServerOptimizer, values: list[float]):
    update = np.array(values, np.float32)
    moved, _ = step(np.zeros(4, np.float32), Aggregate(update, float(np.dot(update, update))))
    assert (moved * np.sign(update) >= 0).all()
    assert np.isfinite(moved).all()


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_a_recipe_keeps_what_its_optimizer_remembers(step: ServerOptimizer):
    recipe = replace(fedavg(), server=Server(optimizer=step))
    updates = np.array([[1, 0], [0, 2], [4, 4]], dtype=np.float32)
    host = Host.of(CannedFleet(updates, [{"samples": n} for n in (10, 30, 60)]))  # type: ignore[arg-type]
    state = State(np.ones(2, np.float32))
    for _ in range(3):
        state, _ = run_round(state, recipe, host, InTime(Uniform(1)), seed=0, evaluate=False)
    mean, square = np.array([2.5, 3.0], np.float32), 0.1 * 1 + 0.3 * 4 + 0.6 * 32
    model, own = np.ones(2, np.float32), EMPTY
    for index in (1, 2, 3):
        model, own = step(model, Aggregate(mean, square), own, index)
    np.testing.assert_allclose(state.model, model, rtol=1e-6)
    assert set(state.own.get("server", {}).get("optimizer", {})) == set(own)


def test_steps_that_are_sums_name_their_coefficients():
    moved = {"move": np.ones(2, np.float32)}
    assert SGD(0.5).mixture(moved) == (0.5, 0)
    assert HeavyBall(2.0, 0.5).mixture(moved) == (2, 0.5)
    assert HeavyBall(2.0, 0.5).mixture(EMPTY) == (2, 0), "there is no last move yet"
    assert not isinstance(Momentum(), MixingOptimizer)
    assert HeavyBall(2.0, 0.5).effective_lr == 4


def test_a_mixture_adds_only_what_counts():
    """A coefficient of 0 adds nothing, whatever is there; one of 1 adds the vector itself."""
    start, wild = np.ones(2, np.float32), np.array([np.inf, np.nan], np.float32)
    assert mix(start, [wild, start], [0.0, 1.0]).tolist() == [2, 2]
    assert mix(start, [start, 2 * start], [2.0, 0.5]).tolist() == [4, 4]
