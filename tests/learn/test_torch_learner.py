"""Local SGD against a plain torch.optim.SGD loop, and what it leaves as it was."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fedmerit import Samples, TorchLearner
from fedmerit.config.schema import TrainConfig
from fedmerit.core.host import predict_all
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.models import dense, two_convolutions

Build = Callable[[], nn.Module]
SEED = 7


def rows(number: int, classes: int = 3, features: int = 4) -> Samples:
    random = np.random.default_rng(0)
    x = random.normal(size=(number, features)).astype(np.float32)
    return Samples(x, random.integers(0, classes, number), classes)


def images(number: int, classes: int = 3) -> Samples:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, size=(number, 8, 8, 1)).astype(np.uint8)
    return Samples(x, random.integers(0, classes, number), classes)


def mlp() -> nn.Module:
    """Our own dense layers."""
    return dense(4, 6, 3)


def foreign_mlp() -> nn.Module:
    """Layers that a user would write."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def cnn() -> nn.Module:
    return two_convolutions(channels=1, side=8, kernel=3, hidden=5, outputs=3)


def foreign_cnn() -> nn.Module:
    """Sequences inside a sequence, ReLU before the pool, a pool alone, padding as a number, ordinary flattening."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(16, 20, 3), nn.ReLU(), nn.MaxPool2d((2, 2))),
        nn.Flatten(),
        nn.ReLU(),
        nn.Linear(20, 300),
        nn.ReLU(),
        nn.Linear(300, 3),
    )


def strided_cnn() -> nn.Module:
    """Settings that are left to autograd."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3, bias=False)
    )


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def one_output() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 1))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))


def train(build: Build, samples: Samples, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """The model before and after."""
    learner = TorchLearner(build, TrainConfig(**settings))
    start = learner.start(SEED)
    return start, learner.train(start, samples, SEED)


def as_tensor(x: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(x.copy())
    return tensor.float().div(255).permute(0, 3, 1, 2) if tensor.dim() == 4 else tensor


def plain_sgd(
    build: Build,
    start: np.ndarray,
    batches: Sequence[tuple[np.ndarray, np.ndarray]],
    prox: float = 0,
    **settings: float,
) -> np.ndarray:
    """What torch.optim.SGD makes of the same batches, the FedProx term being part of the loss."""
    flat = FlatModule(build())
    flat.values.copy_(torch.from_numpy(start))
    parameters = list(flat.module.parameters())
    anchors = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, **settings)
    for x, y in batches:
        optimizer.zero_grad()
        outputs, wanted = flat.module(as_tensor(x)), torch.from_numpy(y)
        single = outputs.shape[1] == 1
        loss = (
            binary_cross_entropy_with_logits(outputs[:, 0], wanted.float())
            if single
            else cross_entropy(outputs, wanted)
        )
        away = sum((parameter - anchor).square().sum() for parameter, anchor in zip(parameters, anchors, strict=True))
        (loss + prox / 2 * away).backward()
        optimizer.step()
    return flat.values.numpy().copy()


OPTIONS = [
    {},
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"prox": 0.5},
    {"momentum": 0.9, "weight_decay": 0.1, "prox": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
@pytest.mark.parametrize(
    ("build", "samples"),
    [
        (mlp, rows(20)),
        (foreign_mlp, rows(20)),
        (mlp, rows(250)),
        (foreign_mlp, rows(250)),
        (cnn, images(12)),
        (cnn, images(130)),
        (foreign_cnn, images(12)),
        (foreign_cnn, images(130)),
        (strided_cnn, images(12)),
        (with_batch_norm, rows(250)),
        (one_output, rows(20, classes=2)),
        (one_output, rows(250, classes=2)),
        (mlp, rows(1)),
    ],
    ids=lambda value: value.__name__ if callable(value) else f"{len(value)} rows",
)
def test_full_batch_training_is_plain_sgd(build: Build, samples: Samples, options: dict[str, float]):
    start, trained = train(build, samples, lr=0.1, epochs=4, batch="full", **options)
    expected = plain_sgd(build, start, [(samples.x, samples.y)] * 4, lr=0.1, **options)
    assert np.abs(expected - start).max() > 1e-3
    np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("build", [cnn, foreign_cnn, strided_cnn])
def test_predictions_are_the_modules(build: Build):
    samples = images(130)
    _, model = train(build, samples, lr=0.1, epochs=20, batch=10)
    flat = FlatModule(build())
    flat.load(torch.from_numpy(model))
    with torch.no_grad():
        expected = flat.module(as_tensor(samples.x)).argmax(1).numpy()
    assert len(set(expected)) > 1
    np.testing.assert_array_equal(TorchLearner(build).predict(model, samples.x), expected)


def test_classes_and_probabilities_come_from_one_pass() -> None:
    passes = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            passes.append(len(x))
            return super().forward(x)

    samples, learner = rows(130), TorchLearner(partial(Counted, 4, 3))
    model = learner.start(0)
    apart = learner.predict(model, samples.x), learner.predict_proba(model, samples.x)
    passes.clear()
    both = predict_all(learner, model, samples.x)
    assert passes == [100, 30]
    assert all(np.array_equal(one, other) for one, other in zip(apart, both, strict=True))


@pytest.mark.parametrize("build", [cnn, foreign_mlp])
def test_a_learner_that_predicts_first_can_still_train(build: Build):
    """A worker may be asked to test before it has trained anybody, or again after it was equipped anew."""
    samples = images(12) if build is cnn else rows(12)
    start = TorchLearner(build).start(SEED)
    learner = TorchLearner(partial(build), TrainConfig(lr=0.1))  # a build of its own: nothing of it is cached yet
    learner.predict(start, samples.x)
    trained = learner.train(start, samples, SEED)
    np.testing.assert_array_equal(trained, TorchLearner(build, TrainConfig(lr=0.1)).train(start, samples, SEED))


class Watched(nn.Module):
    """A layer that notes which rows it is shown; a row is known by its first value."""

    seen: list[np.ndarray] = []  # noqa: RUF012

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.append(x.detach().numpy().copy())
        return x


def watched_mlp() -> nn.Module:
    return nn.Sequential(Watched(), mlp())


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "plain")
def test_mini_batch_training_is_plain_sgd(options: dict[str, float]):
    samples = rows(25)
    Watched.seen.clear()
    start, trained = train(watched_mlp, samples, lr=0.1, epochs=3, batch=10, **options)
    batches = list(Watched.seen)
    assert [len(batch) for batch in batches] == [10, 10, 5] * 3
    label = dict(zip(samples.x[:, 0].tolist(), samples.y.tolist(), strict=True))
    known = [(x, np.array([label[value] for value in x[:, 0].tolist()])) for x in batches]
    expected = plain_sgd(watched_mlp, start, known, lr=0.1, **options)
    np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=2e-6)


def test_every_epoch_sees_every_row_once_in_an_order_of_its_own():
    samples = rows(25)
    Watched.seen.clear()
    train(watched_mlp, samples, epochs=2, batch=10)
    epochs = [np.concatenate(Watched.seen[i : i + 3])[:, 0].tolist() for i in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [sorted(samples.x[:, 0].tolist())] * 2
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("batch", ["full", 20, 1000])
def test_a_batch_of_all_rows_is_one_step_per_epoch(batch: Any):
    samples = rows(20)
    start, trained = train(mlp, samples, lr=0.1, epochs=3, batch=batch)
    np.testing.assert_allclose(
        trained, plain_sgd(mlp, start, [(samples.x, samples.y)] * 3, lr=0.1), rtol=1e-4, atol=2e-6
    )


@pytest.mark.parametrize(
    "build",
    [
        mlp,
        with_batch_norm,
        with_dropout,
    ],
)
def test_same_seed_same_bits(build: Build):
    learner = TorchLearner(build, TrainConfig(batch=10))
    start, samples = learner.start(SEED), rows(25)
    first = learner.train(start, samples, SEED)
    learner.train(start, rows(30), SEED + 1)
    assert (learner.start(SEED) == start).all()
    assert (learner.train(start, samples, SEED) == first).all()


def test_another_seed_gives_another_start_and_other_batches():
    learner = TorchLearner(mlp, TrainConfig(batch=10))
    start = learner.start(1)
    assert (learner.start(2) != start).any()
    assert (learner.train(start, rows(25), 1) != learner.train(start, rows(25), 2)).any()


def test_the_callers_model_and_rows_are_left_alone():
    learner, samples = TorchLearner(cnn, TrainConfig()), images(12)
    start = learner.start(SEED)
    before = (start.copy(), samples.x.copy(), samples.y.copy())
    learner.train(start, samples, SEED)
    learner.predict(start, samples.x)
    assert all((now == then).all() for now, then in zip((start, samples.x, samples.y), before, strict=True))


def test_models_are_float32_and_predictions_are_classes():
    learner, samples = TorchLearner(cnn, TrainConfig()), images(12)
    start = learner.start(SEED)
    assert (start.dtype, start.ndim) == (np.float32, 1)
    assert learner.train(start, samples, SEED).dtype == np.float32
    predicted = learner.predict(start, samples.x)
    assert (predicted.dtype, predicted.shape) == (np.int64, (12,))
    assert learner.predict(start, samples.x[:0]).shape == (0,)


def test_one_output_decides_between_two_classes():
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    samples = Samples(x, (x[:, 0] > 0).astype(np.int64), 2)
    learner = TorchLearner(one_output, TrainConfig(lr=1.0, epochs=50))
    trained = learner.train(learner.start(SEED), samples, SEED)
    predicted = learner.predict(trained, samples.x)
    assert set(predicted.tolist()) == {0, 1}
    assert (predicted == samples.y).mean() > 0.95


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def broken() -> nn.Module:
    return nn.Sequential(nn.Linear(99, 3))


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("build", [mlp, broken])
def test_the_callers_threads_and_random_numbers_are_left_as_they_were(build: Build):
    torch.manual_seed(123)
    state = torch.get_rng_state()
    learner = TorchLearner(build, TrainConfig(epochs=1))
    start = learner.start(SEED)
    if build is mlp:
        learner.train(start, rows(5), SEED)
        learner.predict(start, rows(5).x)
    else:
        with pytest.raises(RuntimeError, match="shapes"):
            learner.train(start, rows(5), SEED)
    assert torch.get_num_threads() == 3
    assert torch.equal(torch.get_rng_state(), state)


def normalised_only() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_running_statistics_of_batch_norm_travel_with_the_model():
    samples = rows(50)
    start, trained = train(normalised_only, samples, lr=0.1, epochs=2, batch="full")
    parameters = 4 + 4 + 12 + 3
    assert len(start) == parameters + 4 + 4
    assert start[parameters:].tolist() == [0] * 4 + [1] * 4
    mean, variance = samples.x.mean(axis=0), samples.x.var(axis=0, ddof=1)
    kept = 0.9**2  # torch moves a tenth of the way in each of the two steps
    np.testing.assert_allclose(trained[parameters:-4], (1 - kept) * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained[-4:], kept + (1 - kept) * variance, rtol=1e-4)


def test_several_learners_in_one_process_do_not_mix():
    one, other = TorchLearner(mlp, TrainConfig()), TorchLearner(foreign_mlp, TrainConfig(lr=0.5))
    alone = one.train(one.start(SEED), rows(9), SEED)
    other.train(other.start(SEED), rows(9), SEED)
    assert (one.train(one.start(SEED), rows(9), SEED) == alone).all()


def drop_cnn() -> nn.Module:
    """M2F's shape: no padding, ReLU before the pool, dropout after both."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3)),
    )


def test_dropout_is_the_same_function_as_torchs_under_the_same_masks(monkeypatch: pytest.MonkeyPatch):
    """One step of ours, then torch's own layers with the masks that ours drew."""
    samples = images(12)
    learner = TorchLearner(drop_cnn, TrainConfig(lr=0.1, epochs=1))
    start, masks = learner.start(SEED), []
    draw = Tensor.bernoulli_

    def noted(tensor: Tensor, p: float) -> Tensor:
        masks.append(draw(tensor, p).clone())
        return tensor

    monkeypatch.setattr(Tensor, "bernoulli_", noted)
    ours = learner.train(start, samples, SEED)
    assert [float(mask.mean()) for mask in masks] == pytest.approx([0.75, 0.5], abs=0.1)

    class Masked(nn.Module):
        def __init__(self, keep: float) -> None:
            super().__init__()
            self.keep = keep

        def forward(self, x: Tensor) -> Tensor:
            return x * masks.pop(0) / self.keep

    def masked() -> nn.Module:
        layers = [Masked(1 - layer.p) if isinstance(layer, nn.Dropout) else layer for layer in drop_cnn()]
        return nn.Sequential(*layers)

    assert ours == pytest.approx(plain_sgd(masked, start, [(samples.x, samples.y)], lr=0.1), abs=1e-6)


def test_dropout_is_off_when_predicting():
    learner, samples = TorchLearner(drop_cnn), images(50)
    model = learner.start(SEED)
    flat = FlatModule(drop_cnn())
    flat.load(torch.from_numpy(model))
    flat.module.eval()
    with torch.no_grad():
        expected = flat.module(as_tensor(samples.x)).argmax(dim=1)
    assert learner.predict(model, samples.x).tolist() == expected.tolist()
    assert learner.layers == ((16, 1, 3, 3), (16,), (16, 16, 3, 3), (16,), (20, 64), (20,), (3, 20), (3,))
