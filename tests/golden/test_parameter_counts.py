"""The papers' networks have the papers' numbers of parameters [PMCFL] [DAFL] [M2F], and learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedmerit import load_task
from fedmerit.learn.models import find_model
from fedmerit.learn.sgd import TorchLearner


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("mnist-cnn", 1_663_370),
        ("mnist-cnn-linear", 1_663_370),
        ("celeba-cnn", 8_409_025),
        ("femnist-cnn", 6_603_710),
        ("m2f-cnn", 1_199_882),
    ],
)
def test_parameter_count(model: str, parameters: int):
    assert TorchLearner(find_model(model)).start(seed=0).shape == (parameters,)


def test_the_network_for_mnist_learns_from_one_client(data_folder: Callable[[str], Path]):
    """30 steps: untrained 4-8 % right, after them 44-56 % over three seeds, for plain torch.optim.SGD just the same."""
    data_folder("mnist")
    task = load_task("mnist", clients=100, train={"lr": 0.1, "epochs": 1, "batch": 20})
    trained = task.learner.train(task.learner.start(0), task.federation.samples(0), seed=0)
    test = task.federation.test
    assert (task.learner.predict(trained, test.x[:500]) == test.y[:500]).mean() > 0.3
