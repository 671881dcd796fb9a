"""Targets: what is predicted of a row, when that counts as right, and how far off it is.

| target | labels y | a prediction | right where | loss of a row |
| --- | --- | --- | --- | --- |
| `Classes` | (N,) whole numbers | a class | it is the class | -log p_y |
| `Number` | (N,) numbers | a number | it is off by `tolerance` or less | log(1 + (error / tolerance)^2) |
| `Labels` | (N, L) of 0 and 1 | a yes or no for each label | all of them are right | mean of -log p over the labels |

Accuracy is the share of the rows that are right, whatever the target is; searches, stopping and reports go by it.
The loss of a number grows slowly, so that no outlier and no lie decides a search.
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

TargetKind: TypeAlias = Literal["classes", "number", "labels"]


class Target(Protocol):
    """What a learner predicts."""

    @property
    def kind(self) -> TargetKind:
        """Classes, a number, or several labels at once."""

    @property
    def audits(self) -> tuple[str, ...]:
        """The objectives that every run writes down, since accuracy alone says too little."""

    @property
    def about(self) -> str:
        """What counts as right, for the ledger; empty where everybody knows."""

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each row is right; `predicted` may have models in front."""

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """What is predicted, from what the losses are told from."""

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """The loss of each row, from probabilities, or from numbers."""


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
        """The class itself."""
        return np.asarray(predicted == y)

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The likeliest."""
        return np.asarray(outputs.argmax(axis=1))

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """Cross-entropy."""
        chosen = outputs[np.arange(len(y)), y].astype(np.float64)
        return np.asarray(-np.log(np.maximum(chosen, LEAST_PROBABILITY)))


@dataclass(frozen=True, slots=True)
class Number:
    """A number: a price, a length of stay. A prediction that is off by `tolerance` or less counts as right.

    A module learns (y - centre) / scale, and what it says is turned back; with the defaults that is y itself. Numbers
    far from 0 or far apart, such as incomes, are learned faster with their mean and deviation here.

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
                "a target that is a number has a tolerance and a scale above 0 and a finite centre; got "
                f"{self.tolerance}, {self.scale} and {self.centre}"
            )

    @property
    def about(self) -> str:
        """What counts as right."""
        plain = self.centre == 0 and self.scale == 1
        learned = "" if plain else f"; the module learns (y - {self.centre:.4g}) / {self.scale:.4g}"
        right = f"accuracy is the share of rows predicted to within {self.tolerance:g}"
        return f"{right}; mae and r2 are audited beside it{learned}"

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """|predicted - y| <= tolerance."""
        return np.asarray(np.abs(predicted - y) <= self.tolerance)

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """The number itself."""
        return outputs

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """log(1 + (error / tolerance)^2), Cauchy's; at most `MOST_LOSS`, also where a model says no number at all."""
        errors: Vector = np.nan_to_num(np.abs(outputs.astype(np.float64) - y) / self.tolerance, nan=math.inf)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(np.log1p(np.square(errors)), MOST_LOSS))


@dataclass(frozen=True, slots=True)
class Labels:
    """Several labels at once, each there or not: findings on a scan, topics of a text.

    >>> Labels().right(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 0]])).tolist()
    [True, False]
    """

    kind: ClassVar[TargetKind] = "labels"
    audits: ClassVar[tuple[str, ...]] = ("f1", "auc")
    about: ClassVar[str] = (
        "accuracy is the share of rows whose labels are all right; f1 and auc over the labels are audited beside it"
    )

    def right(self, predicted: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """All labels of the row."""
        return np.asarray((predicted == y).all(axis=-1))

    def decide(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """There where its probability is above a half."""
        return (outputs > 0.5).astype(np.int64)

    def losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> Vector:
        """Mean over the labels of the cross-entropy of each."""
        chosen = np.where(y == 1, outputs, 1 - outputs).astype(np.float64)
        return np.asarray(-np.log(np.maximum(chosen, LEAST_PROBABILITY)).mean(axis=1))


CLASSES = Classes()


@runtime_checkable
class TargetLearner(Learner, Protocol):
    """A learner that says what it predicts; others predict classes."""

    @property
    def target(self) -> Target:
        """Classes, a number or labels."""


def target_of(learner: Learner) -> Target:
    """What the learner predicts."""
    return learner.target if isinstance(learner, TargetLearner) else CLASSES


def has_probabilities(learner: Learner) -> bool:
    """Whether the learner knows the chance of each class or label; a number has none."""
    return isinstance(learner, ProbabilisticLearner) and target_of(learner).kind != "number"


def has_losses(learner: Learner) -> bool:
    """Whether it can be told how large the loss of a row is."""
    return has_probabilities(learner) or target_of(learner).kind == "number"


def right_rows(learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows a model gets right."""
    return target_of(learner).right(learner.predict(model, x), y)


def row_losses(learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]) -> Vector:
    """The loss of each row."""
    return target_of(learner).losses(_outputs(learner, model, x), y)


def count_losses(
    learner: Learner, model: Model, x: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Which rows a model gets right, and the loss of each in units of 2^-20, so that sums are the same everywhere."""
    target, outputs = target_of(learner), _outputs(learner, model, x)
    units = np.rint(target.losses(outputs, y) / LOSS_UNIT).astype(np.int32)
    return target.right(target.decide(outputs), y), units


def _outputs(learner: Learner, model: Model, x: NDArray[Any]) -> NDArray[Any]:
    """What losses are told from: probabilities, or the predicted numbers."""
    if target_of(learner).kind == "number":
        return learner.predict(model, x)
    if not isinstance(learner, ProbabilisticLearner):
        raise ConfigError("losses need a learner with a method `predict_proba`")
    return learner.predict_proba(model, x)
