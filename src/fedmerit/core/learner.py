"""Learner: what any learning library must offer to take part; numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.server.controls import Control
from fedmerit.core.types import Model, Samples

if TYPE_CHECKING:
    from fedmerit.core.server.centring import Centring


class Learner(Protocol):
    """A model as one flat float32 row, and how a client improves it.

    With several workers a learner is sent to other processes once, so it must be picklable: a frozen dataclass is.
    The same arguments must give the same bits. `TorchLearner` is one; examples/sklearn_task.py has another.

    >>> class Commonest:
    ...     def start(self, seed):
    ...         return np.zeros(10, np.float32)
    ...     def train(self, model, samples, seed, epochs=None):
    ...         return np.bincount(samples.y, minlength=10).astype(np.float32)
    ...     def predict(self, model, x):
    ...         return np.full(len(x), model.argmax())
    >>> learner, rows = Commonest(), Samples(np.zeros((3, 1)), np.array([2, 2, 7]), classes=10)
    >>> learner.predict(learner.train(learner.start(0), rows, seed=0), rows.x).tolist()
    [2, 2, 2]
    """

    def start(self, seed: int) -> Model:
        """The model before the first round."""

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        """The model after local training on the client's rows.

        `model` is the learner's own copy. Rows are shared by all clients and may not be written to: numpy refuses,
        torch does not see it, so an operation in place (`x.sub_(...)`) needs `x.clone()` first.

        `epochs`, where given, is how many passes this client makes instead of as many as the learner is set up for.
        """

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[Any]:
        """The predicted class of each row; or a number or labels, where the learner has such a `target`."""


@runtime_checkable
class BatchedLearner(Learner, Protocol):
    """A learner that trains several clients faster at once than one by one."""

    @property
    def clients_at_once(self) -> int:
        """How many clients `train_batched` takes at once; 1 where it does not pay."""

    def train_batched(
        self,
        models: Sequence[Model],
        samples: Sequence[Samples],
        seeds: Sequence[int],
        epochs: Sequence[int | None],
    ) -> list[Model]:
        """`train` of each client, in order; equal up to rounding."""


@runtime_checkable
class DeviceLearner(Learner, Protocol):
    """A learner that can train on an accelerator of this machine."""

    @property
    def described(self) -> str:
        """Kind and make of where it trains, for the ledger; a resume compares it."""

    def on(self, device: str) -> DeviceLearner:
        """The same learner on another device, as `run.device` names it."""


@runtime_checkable
class PanelLearner(Learner, Protocol):
    """A learner that asks many models about the same rows faster at once than one by one."""

    @property
    def models_at_once(self) -> int:
        """How many models `predict_each` takes at once; 1 where it does not pay."""

    def predict_each(self, models: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.float32]:
        """Each model's probabilities (models, rows, classes); equal to `predict_proba` up to rounding."""


@runtime_checkable
class ProbabilisticLearner(Learner, Protocol):
    """A learner that says how sure it is, for objectives of loss and calibration."""

    def predict_proba(self, model: Model, x: NDArray[Any]) -> NDArray[np.float32]:
        """The probability of each class for each row: (rows, classes), where each row sums to 1; or of each label."""


@runtime_checkable
class OnePassLearner(ProbabilisticLearner, Protocol):
    """A learner that knows classes and probabilities from one pass through the model."""

    def predict_both(self, model: Model, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """What `predict` and `predict_proba` give."""


LEAST_PROBABILITY = 1e-12
"""So that one row that a model is sure to get wrong does not make a loss infinite."""

LOSS_UNIT = 2.0**-20
"""Losses of rows are counted in this unit: sums of whole numbers are the same in any order and on any fleet."""

MOST_LOSS = 28.0
"""Above the largest loss of a row, -log(LEAST_PROBABILITY)."""


@runtime_checkable
class LayeredLearner(Learner, Protocol):
    """A learner that knows the layers of its model, for rewards in each layer."""

    @property
    def layers(self) -> Sequence[int]:
        """The lengths of the model's layers, in its order."""


@dataclass(frozen=True, slots=True)
class NamedTensors:
    """A model as its library names it: tensors by name, as they go into files that the library reads itself.

    vector  the names whose values, one after the other, are the model's flat row
    beside  those of them that the library leaves out of its own files, such as buffers that torch does not persist
    """

    tensors: Mapping[str, NDArray[Any]]
    vector: tuple[str, ...]
    beside: tuple[str, ...] = ()


@runtime_checkable
class NamedLearner(Learner, Protocol):
    """A learner that knows its model by the names and shapes of its library."""

    def name_tensors(self, model: Model) -> NamedTensors:
        """The model's tensors by name."""


@runtime_checkable
class CentredLearner(Learner, Protocol):
    """A learner whose models may carry the mean of the inputs, which it then takes off whatever it is shown."""

    def centred(self, model: Model, centring: Centring) -> Model:
        """The model with this centring in it: a vector that may be longer, whose further values training leaves."""


@runtime_checkable
class ExtrasLearner(Learner, Protocol):
    """A learner that receives named vectors beside the model and sends some back: control variates, gradients."""

    @property
    def extras(self) -> tuple[str, ...]:
        """The names of the vectors that it sends back, each as long as the model."""

    def train_with(
        self, model: Model, extras: Mapping[str, Model], samples: Samples, seed: int, epochs: int | None
    ) -> tuple[Model, Mapping[str, Model]]:
        """As `train`, with the vectors that came along; the trained model, and the vectors to send back."""


@runtime_checkable
class ControlledLearner(ExtrasLearner, Protocol):
    """A learner that says what its extra vectors are made of: SCAFFOLD, FedDyn."""

    @property
    def control(self) -> Control | None:
        """What the server does for it; None where it does nothing."""


@runtime_checkable
class PulledLearner(Learner, Protocol):
    """A learner that trains a model while another one pulls it: for models that clients keep beside the shared one."""

    def train_pulled(
        self, model: Model, towards: Model, pull: float, samples: Samples, seed: int, epochs: int | None
    ) -> Model:
        """As `train`, with pull * (model - towards) added to every gradient."""


@runtime_checkable
class ScheduledLearner(Learner, Protocol):
    """A learner whose learning rate may differ from round to round."""

    def rate(self, index: int, rounds: int | None) -> float | None:
        """The learning rate of a round, of so many; None where it is always the same."""

    def at_rate(self, lr: float) -> Learner:
        """The same learner with this learning rate."""
