"""Adam, AdamW and corrections against a loop over torch.optim and autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedmerit import Samples, TorchLearner
from fedmerit.config.schema import TrainConfig
from fedmerit.core.server.controls import CORRECTION, SLOPE
from fedmerit.errors import ConfigError
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.models import dense

STEPS, SEED = 6, 3
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def mlp() -> nn.Module:
    """A stack that is written out."""
    return dense(4, 6, 3)


def foreign() -> nn.Module:
    """One that is left to autograd."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def rows(number: int = 30) -> Samples:
    random = np.random.default_rng(0)
    return Samples(random.normal(size=(number, 4)).astype(np.float32), random.integers(0, 3, number), 3)


def by_torch(
    build: Any,
    start: np.ndarray,
    optimizer: str,
    correction: np.ndarray,
    pull: float,
    **settings: Any,
) -> np.ndarray:
    """Full batches under torch.optim, pulled and corrected."""
    samples, flat = rows(), FlatModule(build())
    flat.values.copy_(torch.from_numpy(start))
    parameters = list(flat.module.parameters())
    steps = OPTIMIZERS[optimizer](parameters, **settings)
    anchor = flat.trained.clone()
    for _ in range(STEPS):
        flat.gradient.zero_()
        cross_entropy(flat.module(torch.from_numpy(samples.x)), torch.from_numpy(samples.y)).backward()
        with torch.no_grad():
            flat.gradient.add_(flat.trained - anchor, alpha=pull).add_(torch.from_numpy(correction))
        steps.step()
    return flat.values.numpy().copy()


@pytest.mark.parametrize("build", [mlp, foreign])
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam", "lr": 0.02},
        {"optimizer": "adam", "lr": 0.02, "weight_decay": 0.1},
        {"optimizer": "adamw", "lr": 0.02, "weight_decay": 0.1},
        {"optimizer": "sgd", "momentum": 0.5},
        {"optimizer": "sgd", "prox": 0.7},  # FedProx: mu (w - w_received) is added to the gradient
    ],
    ids=str,
)
def test_the_same_as_torch_optim(build: Any, options: dict[str, Any]):
    learner = TorchLearner(build, TrainConfig(epochs=STEPS, **options))
    start = learner.start(SEED)
    settings = {"lr": 0.1} | {key: options[key] for key in ("lr", "weight_decay", "momentum") if key in options}
    if options["optimizer"] == "adamw":
        settings.setdefault("weight_decay", 0.0)
    pull, none = options.get("prox", 0.0), np.zeros_like(start)
    expected = by_torch(build, start, options["optimizer"], none, pull, **settings)
    assert np.abs(expected - start).max() > 1e-3
    np.testing.assert_allclose(learner.train(start, rows(), SEED), expected, rtol=1e-4, atol=3e-6)


def test_every_round_begins_its_optimizer_anew():
    learner = TorchLearner(mlp, TrainConfig(epochs=2, optimizer="adam", lr=0.01))
    start = learner.start(SEED)
    first = learner.train(start, rows(), SEED)
    learner.train(first, rows(), SEED)
    assert learner.train(start, rows(), SEED).tobytes() == first.tobytes()


@pytest.mark.parametrize("build", [mlp, foreign])
@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_a_correction_is_added_to_every_gradient(build: Any, algorithm: str):
    alpha = {"prox": 0.7} if algorithm == "feddyn" else {}
    learner = TorchLearner(build, TrainConfig(epochs=STEPS, lr=0.1, algorithm=algorithm, **alpha))
    start = learner.start(SEED)
    correction = (0.3 * np.random.default_rng(1).normal(size=len(start))).astype(np.float32)
    trained, sent = learner.train_with(start, {CORRECTION: correction}, rows(), SEED, None)
    expected = by_torch(build, start, "sgd", correction, alpha.get("prox", 0.0), lr=0.1)
    np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=3e-6)
    assert set(sent) == ({SLOPE} if algorithm == "scaffold" else set())
    if sent:
        np.testing.assert_allclose(sent[SLOPE], (start - trained) / (0.1 * STEPS), rtol=1e-5)
        mini = TorchLearner(build, TrainConfig(epochs=2, batch=20, lr=0.1, algorithm=algorithm))
        ended, slopes = mini.train_with(start, {}, rows(30), SEED, 3)
        np.testing.assert_allclose(slopes[SLOPE], (start - ended) / (0.1 * 3 * 2), rtol=1e-5)  # 3 epochs of 2 batches


def test_buffers_have_no_slope_and_no_place_in_feddyn():
    learner = TorchLearner(with_batch_norm, TrainConfig(algorithm="scaffold"))
    start = learner.start(SEED)
    trained, sent = learner.train_with(start, {}, rows(), SEED, None)
    assert (trained[-12:] != start[-12:]).any()
    assert not sent[SLOPE][-12:].any()
    assert sent[SLOPE][:-12].any()
    with pytest.raises(ConfigError, match="batch-norm"):
        TorchLearner(with_batch_norm, TrainConfig(algorithm="feddyn")).start(SEED)


def test_vectors_that_nobody_asked_for_are_an_error():
    learner = TorchLearner(mlp, TrainConfig())
    start = learner.start(SEED)
    with pytest.raises(ValueError, match="uses no vectors"):
        learner.train_with(start, {CORRECTION: start}, rows(), SEED, None)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"algorithm": "scaffold"},
        {"algorithm": "feddyn"},
        {"prox": 0.1},
        {"weight_decay": 0.1},
    ],
    ids=str,
)
def test_only_plain_sgd_trains_several_clients_at_once(options: dict[str, Any]):
    assert TorchLearner(mlp, TrainConfig(**options)).clients_at_once == 1
    assert TorchLearner(mlp, TrainConfig(schedule="cosine")).clients_at_once > 1


def test_a_learning_rate_of_the_round():
    config = TrainConfig(lr=0.4, schedule="cosine", epochs=1)
    learner = TorchLearner(mlp, config)
    start = learner.start(SEED)
    assert [learner.rate(index, 2) for index in (1, 2)] == pytest.approx([0.4, 0.2])
    plain = TorchLearner(mlp, TrainConfig(lr=0.1, epochs=1)).train(start, rows(), SEED)
    assert learner.at_rate(0.1).train(start, rows(), SEED).tobytes() == plain.tobytes()
    assert TorchLearner(mlp).rate(1, 10) is None
