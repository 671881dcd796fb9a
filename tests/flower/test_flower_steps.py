"""Merit with a server optimizer against Flower's own strategies on the same grid."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi
from small_app import Arrays, make_app

from fedmerit import fedavg
from fedmerit.core.server.optimizers import Adam, Momentum, Yogi
from fedmerit.core.server.server import Server, ServerOptimizer
from fedmerit.flower import InProcessGrid, Merit

NODES, LENGTH, ROUNDS = 4, 30, 5
SETTINGS = {"min_train_nodes": NODES, "min_available_nodes": NODES, "fraction_evaluate": 0.0}
CASES: dict[str, tuple[Callable[..., FedAvg], ServerOptimizer]] = {
    "momentum": (
        lambda **settings: FedAvgM(server_learning_rate=0.7, server_momentum=0.8, **settings),
        Momentum(momentum=0.8, lr=0.7),
    ),
    "adam": (lambda **settings: FedAdam(eta=0.2, tau=1e-3, **settings), Adam(lr=0.2, correct=True)),
    "yogi": (lambda **settings: from_tau(FedYogi(eta=0.2, tau=1e-3, **settings)), Yogi(lr=0.2)),
}


def from_tau(strategy: Any) -> Any:
    """Flower's strategy with v from tau squared, as in the paper; Flower starts it at 0."""
    strategy.v_t = {"w": np.full(LENGTH, strategy.tau**2, np.float32)}
    return strategy


def move(node: int, arrays: Arrays) -> Arrays:
    """Clients pull towards points of their own, so that updates change from round to round."""
    goal = np.random.default_rng(node).normal(size=LENGTH).astype(np.float32)
    return {"w": (arrays["w"] + 0.5 * (goal - arrays["w"])).astype(np.float32)}


def run(strategy: Any) -> np.ndarray:
    start = ArrayRecord({"w": Array(np.zeros(LENGTH, np.float32))})
    app = make_app(lambda node: {"num-examples": 10 * (node + 1)}, move=move)
    return strategy.start(InProcessGrid(app, NODES), start, num_rounds=ROUNDS).arrays["w"].numpy()


@pytest.mark.parametrize("name", CASES)
def test_the_same_model_as_flowers_own_strategy(name: str):
    theirs, optimizer = CASES[name]
    ours = run(Merit(replace(fedavg(), server=Server(optimizer=optimizer)), **SETTINGS))
    np.testing.assert_allclose(ours, run(theirs(**SETTINGS)), rtol=1e-4, atol=1e-6)
    assert np.abs(ours - run(Merit(fedavg(), **SETTINGS))).max() > 1e-3, "the optimizer has an effect"
