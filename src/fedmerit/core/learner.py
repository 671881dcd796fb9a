"""Learner: the interface between fedmerit and a learning library; numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.server.controls import Control
from fedmerit.core.types import Model, Samples


class Learner(Protocol):
    """Interface of a learner: a model as one flat float32 row, and how a client trains it.

    With several workers a learner is pickled once and sent to other processes: a frozen dataclass works. The same
    arguments must give the same bits. `TorchLearner` is one; examples/sklearn_task.py has another.

    >>> class Commonest:
    ...     def start(self, seed):
    ...         return np.zeros(10, np.float32)
    ...     def train(self, model, samples, seed, epochs=None):
    ...         return np.bincount(samples.y, minlength=10).astype(np.float32)
    ...     def predict(self, model, x):
    ...         return np.full(len(x), model.argmax())
    >>> learner = Commonest()
    >>> rows = Samples(np.zeros((3, 1)), np.array([2, 2, 7]), classes=10)
    >>> learner.predict(learner.train(learner.start(0), rows, seed=0), rows.x).tolist()
    [2, 2, 2]
    """

    def start(self, seed: int) -> Model:
        """Return the model before the first round."""

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        """Return the model after local training on the client's rows.

        model     the learner's copy to start from; it may be written to
        samples   the client's rows, shared by all clients and read-only: numpy refuses to write, torch does not notice,
                  so an in-place operation (`x.sub_(...)`) needs `x.clone()` first
        seed      seed of all random draws
        epochs    passes over the rows; None: the learner's setting
        """

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[Any]:
        """Predict the class of each row, or a number or labels if the learner has such a `target`."""


@runtime_checkable
class BatchedLearner(Learner, Protocol):
    """A learner that trains several clients at once faster than one by one."""

    @property
    def clients_at_once(self) -> int:
        """The number of clients that `train_batched` accepts; 1 if batching does not pay."""

    def train_batched(
        self,
        models: Sequence[Model],
        samples: Sequence[Samples],
        seeds: Sequence[int],
        epochs: Sequence[int | None],
    ) -> list[Model]:
        """Train each client as `train` does, in order; equal up to rounding."""


@runtime_checkable
class DeviceLearner(Learner, Protocol):
    """A learner that can train on an accelerator of this machine."""

    @property
    def described(self) -> str:
        """Kind and model of the device, for the ledger; a resume compares it."""

    def on(self, device: str) -> DeviceLearner:
        """Return the same learner on another device, named as in `run.device`."""


@runtime_checkable
class PanelLearner(Learner, Protocol):
    """A learner that evaluates many models on the same rows at once faster than one by one."""

    @property
    def models_at_once(self) -> int:
        """The number of models that `predict_each` accepts; 1 if that does not pay."""

    def predict_each(self, models: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.float32]:
        """Return each model's probabilities (models, rows, classes); equal to `predict_proba` up to rounding."""


@runtime_checkable
class SharedRowsLearner(Learner, Protocol):
    """A learner that trains many models on the same rows at once faster than one by one."""

    @property
    def trains_each(self) -> bool:
        """Whether `train_each` applies to this learner's settings."""

    def train_each(
        self, models: NDArray[np.float32], samples: Samples, seed: int, epochs: int | None = None
    ) -> NDArray[np.float32]:
        """Return the trained models (models, values); equal to `train` of each one up to rounding."""


@runtime_checkable
class ProbabilisticLearner(Learner, Protocol):
    """A learner with class probabilities, for objectives such as loss and auc."""

    def predict_proba(self, model: Model, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the probability of each class per row: (rows, classes), rows sum to 1."""


@runtime_checkable
class OnePassLearner(ProbabilisticLearner, Protocol):
    """A learner that computes classes and probabilities in one pass through the model."""

    def predict_both(self, model: Model, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the results of `predict` and `predict_proba`."""


LEAST_PROBABILITY = 1e-12
"""Lower bound of probabilities in a loss, so that one confident mistake does not make it infinite."""

LOSS_UNIT = 2.0**-20
"""Losses of rows are counted in this unit: sums of integers are the same in any order and on any fleet."""

MOST_LOSS = 28.0
"""Upper bound of the loss of a row, above -log(LEAST_PROBABILITY)."""


@runtime_checkable
class LayeredLearner(Learner, Protocol):
    """A learner that reports the layers of its model, for rewards and norms per layer."""

    @property
    def layers(self) -> Sequence[tuple[int, ...]]:
        """Shapes of the model's tensors, in the order of the vector."""


@dataclass(frozen=True, slots=True)
class NamedTensors:
    """A model as tensors by name, as its library stores them in files.

    vector  the names whose values, concatenated, are the model's flat row
    beside  those of them that the library leaves out of its files, such as buffers that torch does not persist
    """

    tensors: Mapping[str, NDArray[Any]]
    vector: tuple[str, ...]
    beside: tuple[str, ...] = ()


@runtime_checkable
class NamedLearner(Learner, Protocol):
    """A learner that reports the names and shapes of its library for the model's tensors."""

    def name_tensors(self, model: Model) -> NamedTensors:
        """Return the model's tensors by name."""


@runtime_checkable
class ExtrasLearner(Learner, Protocol):
    """A learner that receives named vectors in addition to the model and returns some: control variates, gradients."""

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of the vectors that it returns, each as long as the model."""

    def train_with(
        self, model: Model, extras: Mapping[str, Model], samples: Samples, seed: int, epochs: int | None
    ) -> tuple[Model, Mapping[str, Model]]:
        """Train as `train` does, with these vectors; return the trained model and the vectors to send."""


@runtime_checkable
class ControlledLearner(ExtrasLearner, Protocol):
    """A learner with control variates: SCAFFOLD, FedDyn."""

    @property
    def control(self) -> Control | None:
        """The server's part of the control; None for none."""


@runtime_checkable
class PulledLearner(Learner, Protocol):
    """A learner that trains a model pulled towards another: for local models next to the shared one (Ditto)."""

    def train_pulled(
        self, model: Model, towards: Model, pull: float, samples: Samples, seed: int, epochs: int | None
    ) -> Model:
        """Train as `train` does, with pull * (model - towards) added to every gradient."""


@runtime_checkable
class ScheduledLearner(Learner, Protocol):
    """A learner whose learning rate may change from round to round."""

    def rate(self, index: int, rounds: int | None) -> float | None:
        """Return the learning rate of round `index` of `rounds`; None if it is constant."""

    def at_rate(self, lr: float) -> Learner:
        """Return the same learner with this learning rate."""
