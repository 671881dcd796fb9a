"""The papers' networks have the papers' numbers of parameters [PMCFL] [DAFL] [M2F], and learn."""

from __future__ import annotations

import pytest

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
