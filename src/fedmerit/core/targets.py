"""Targets: what a learner predicts for a row, when a prediction counts as right, and its loss.

| target | labels y | a prediction | right where | loss of a row |
| --- | --- | --- | --- | --- |
| `Classes` | (N,) whole numbers | a class | it is the class | -log p_y |
| `Number` | (N,) numbers | a number | it is off by `tolerance` or less | log(1 + (error / tolerance)^2) |

Accuracy is the share of the rows that are right, for every target; searches, early stopping and reports use it.
The loss of a number grows logarithmically, so that neither an outlier nor a lie decides a search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import LEAST_PROBABILITY, LOSS_UNIT, MOST_LOSS, Learner, ProbabilisticLearner
from fedmerit.core.types import Model, Vector
from fedmerit.errors import ConfigError

TargetKind: TypeAlias = Literal["classes", "number"]


class Target(Protocol):
    """What a learner predicts."""

    @property
    def kind(self) -> TargetKind:
        """Classes, or a number."""

    @property
    def audits(self) -> tuple[str, ...]:
        """The objectives that every run records in addition to accuracy."""

    @property
    def about(self) -> str:
        """What counts as right, for the ledger; empty for classes."""

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each row is right; `predicted` may have models as its first axis."""

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The prediction, from probabilities or from numbers."""

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """The loss of each row, from probabilities or from numbers."""


@dataclass(frozen=True, slots=True)
class Classes:
    """One of several classes.

    >>> Classes().right(np.array([0, 2]), np.array([0, 1])).tolist()
    [True, False]
    """

    kind: ClassVar[TargetKind] = "classes"
    audits: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[str] = ""

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the class is the label."""
        return np.asarray(predicted == y)

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The most probable class."""
        return np.asarray(outputs.argmax(axis=1))

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """Cross-entropy."""
        chosen = outputs[np.arange(len(y)), y].astype(np.float64)
        return np.asarray(-np.log(np.maximum(chosen, LEAST_PROBABILITY)))


@dataclass(frozen=True, slots=True)
class Number:
    """A number: a price, a length of stay. A prediction that is off by `tolerance` or less counts as right.

    A module learns (y - centre) / scale, and predictions are scaled back; with the defaults that is y itself. Numbers
    far from 0 or with a large range, such as incomes, are learned faster with their mean and deviation here.

    >>> Number(tolerance=2).right(np.array([10.0, 15.0]), np.array([8.5, 12.0])).tolist()
    [True, False]
    """

    tolerance: float
    centre: float = 0.0
    scale: float = 1.0

    kind: ClassVar[TargetKind] = "number"
    audits: ClassVar[tuple[str, ...]] = ("mae", "r2")

    def __post_init__(self) -> None:
        if not (0 < self.tolerance < math.inf and 0 < self.scale < math.inf and math.isfinite(self.centre)):
            raise ConfigError(
                "target needs a tolerance and a scale above 0 and a finite centre (got "
                f"{self.tolerance}, {self.scale} and {self.centre})"
            )

    @property
    def about(self) -> str:
        """What counts as right."""
        plain = self.centre == 0 and self.scale == 1
        learned = "" if plain else f"; the module learns (y - {self.centre:.4g}) / {self.scale:.4g}"
        right = f"accuracy is the share of rows predicted to within {self.tolerance:g}"
        return f"{right}; mae and r2 are recorded too{learned}"

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """|predicted - y| <= tolerance."""
        return np.asarray(np.abs(predicted - y) <= self.tolerance)

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The number itself."""
        return outputs

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """Cauchy loss log(1 + (error / tolerance)^2); at most `MOST_LOSS`, also for NaN predictions."""
        errors: Vector = np.nan_to_num(np.abs(outputs.astype(np.float64) - y) / self.tolerance, nan=math.inf)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(np.log1p(np.square(errors)), MOST_LOSS))


CLASSES = Classes()


@runtime_checkable
class TargetLearner(Learner, Protocol):
    """A learner with its own target; every other learner predicts classes."""

    @property
    def target(self) -> Target:
        """Classes, a number or labels."""


def target_of(learner: Learner) -> Target:
    """Return the learner's target."""
    return learner.target if isinstance(learner, TargetLearner) else CLASSES


def has_probabilities(learner: Learner) -> bool:
    """Whether the learner gives the probability of each class; numbers have none."""
    return isinstance(learner, ProbabilisticLearner) and target_of(learner).kind != "number"


def has_losses(learner: Learner) -> bool:
    """Whether the loss of a row can be computed."""
    return has_probabilities(learner) or target_of(learner).kind == "number"


def right_rows(learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows a model predicts correctly."""
    return target_of(learner).right(learner.predict(model, x), y)


def row_losses(learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]) -> Vector:
    """The loss of each row."""
    return target_of(learner).losses(_outputs(learner, model, x), y)


def count_losses(
    learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Which rows a model predicts correctly, and losses in units of 2^-20, so that sums do not depend on the order."""
    target, outputs = target_of(learner), _outputs(learner, model, x)
    units = np.rint(target.losses(outputs, y) / LOSS_UNIT).astype(np.int32)
    return target.right(target.decide(outputs), y), units


def _outputs(learner: Learner, model: Model, x: NDArray[Any]) -> NDArray[Any]:
    """Probabilities, or predicted numbers."""
    if target_of(learner).kind == "number":
        return learner.predict(model, x)
    if not isinstance(learner, ProbabilisticLearner):
        raise ConfigError(
            f"losses need a learner with a method `predict_proba` (got {type(learner).__name__}); add the method"
        )
    return learner.predict_proba(model, x)
