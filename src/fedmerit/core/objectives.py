"""Objectives: what a server asks of a model on rows of its own, 0..1 and higher is better (SPEC A4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import Vector
from fedmerit.errors import ConfigError, DataError, UnknownName

Labels: TypeAlias = NDArray[np.int64]
AND = "+"
"""Between attributes: the groups are the combinations that occur."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What k models say of the same N rows: their labels `y`, the class `predicted` and, where known, probabilities.

    `predicted` is (k, N), `probabilities` (k, N, classes).
    """

    y: Labels
    classes: int
    attributes: Mapping[str, NDArray[np.generic]]
    predicted: Labels
    probabilities: NDArray[np.float32] | None = None

    def groups(self, attribute: str) -> list[NDArray[np.intp]]:
        """The rows of each group by an attribute, or by several: `sex+race`."""
        columns = [self._column(name) for name in attribute.split(AND)]
        codes = np.unique(
            np.column_stack([np.unique(c, return_inverse=True)[1] for c in columns]), axis=0, return_inverse=True
        )[1]
        return [np.flatnonzero(codes.ravel() == code) for code in range(int(codes.max(initial=-1)) + 1)]

    def _column(self, name: str) -> NDArray[np.generic]:
        if name not in self.attributes:
            known = ", ".join(sorted(self.attributes)) or "none"
            raise DataError(f"the server's rows have no attribute {name!r}; they have: {known}")
        return self.attributes[name]


class Objective(Protocol):
    """One number per model; NaN where the rows cannot tell."""

    @property
    def name(self) -> str:
        """How configuration, ledger and report call it."""

    def __call__(self, answers: Predictions) -> Vector:
        """The objective of each model."""


@dataclass(frozen=True, slots=True)
class Plain:
    """An objective of all rows together."""

    name: str

    def __call__(self, answers: Predictions) -> Vector:
        """As `PLAIN` has it."""
        return PLAIN[self.name](answers)


@dataclass(frozen=True, slots=True)
class ByGroup:
    """An objective that compares groups: `parity:sex`, `odds:sex+race`."""

    measure: str
    attribute: str

    @property
    def name(self) -> str:
        """The measure and the attribute."""
        return f"{self.measure}:{self.attribute}"

    def __call__(self, answers: Predictions) -> Vector:
        """As `GROUPED` has it; NaN where there are not two groups to compare."""
        groups = answers.groups(self.attribute)
        if len(groups) < 2:
            return np.full(len(answers.predicted), np.nan)
        return GROUPED[self.measure](answers, groups)


@dataclass(frozen=True, slots=True)
class Gated:
    """An objective that counts only for models of some accuracy: a constant model looks fair (SPEC A4)."""

    objective: Objective
    least: float

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise ConfigError(f"a gate is an accuracy in 0..1; got {self.least}")

    @property
    def name(self) -> str:
        """As the objective's: the gate is a setting of it."""
        return self.objective.name

    def __call__(self, answers: Predictions) -> Vector:
        """0 below the gate."""
        values = self.objective(answers)
        return np.where(np.isnan(values) | (accuracy(answers) >= self.least), values, 0.0)


def accuracy(answers: Predictions) -> Vector:
    """Share of rows that are right."""
    return np.asarray((answers.predicted == answers.y).mean(axis=1))


def balanced_accuracy(answers: Predictions) -> Vector:
    """Mean over the classes that occur of the share of their rows that are right."""
    right = answers.predicted == answers.y
    return np.asarray(np.mean([right[:, answers.y == label].mean(axis=1) for label in np.unique(answers.y)], axis=0))


def scaled_loss(answers: Predictions) -> Vector:
    """1 - cross-entropy / ln(classes), not below 0: a guess among all classes alike has 0."""
    chances = _chances(answers, "loss")[:, np.arange(len(answers.y)), answers.y]
    entropy = -np.log(np.maximum(chances.astype(np.float64), 1e-12)).mean(axis=1)
    return np.asarray(np.maximum(1 - entropy / np.log(answers.classes), 0.0))


def worst_group(answers: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """The accuracy of the group that fares worst."""
    right = answers.predicted == answers.y
    return np.asarray(np.min([right[:, rows].mean(axis=1) for rows in groups], axis=0))


def parity(answers: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - largest difference between groups of P(predicted = 1)."""
    return 1 - _spread([_positive(answers)[:, rows].mean(axis=1) for rows in groups])


def opportunity(answers: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - largest difference between groups of P(predicted = 1 | y = 1)."""
    return 1 - _spread(_rates(answers, groups, 1))


def odds(answers: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - mean of the largest differences of P(predicted = 1 | y = 1) and of P(predicted = 1 | y = 0)."""
    return 1 - (_spread(_rates(answers, groups, 1)) + _spread(_rates(answers, groups, 0))) / 2


def calibration(answers: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - largest difference between groups of (mean chance given to class 1 - share of class 1)."""
    chances = _chances(answers, "calibration")[:, :, 1].astype(np.float64)
    _positive(answers)
    return np.maximum(1 - _spread([chances[:, rows].mean(axis=1) - answers.y[rows].mean() for rows in groups]), 0.0)


PLAIN: Mapping[str, Callable[[Predictions], Vector]] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "loss": scaled_loss,
}
GROUPED: Mapping[str, Callable[[Predictions, list[NDArray[np.intp]]], Vector]] = {
    "parity": parity,
    "opportunity": opportunity,
    "odds": odds,
    "worst_group": worst_group,
    "calibration": calibration,
}


def find_objective(name: str) -> Objective:
    """The objective called so: `accuracy`, or `parity:ATTRIBUTE`."""
    measure, colon, attribute = name.partition(":")
    if measure in PLAIN and not colon:
        return Plain(measure)
    if measure in GROUPED and attribute:
        return ByGroup(measure, attribute)
    raise UnknownName("objective", name, [*PLAIN, *(f"{grouped}:ATTRIBUTE" for grouped in GROUPED)])


def _spread(values: list[Vector]) -> Vector:
    table = np.stack(values)
    return np.asarray(table.max(axis=0) - table.min(axis=0))


def _rates(answers: Predictions, groups: list[NDArray[np.intp]], label: int) -> list[Vector]:
    """P(predicted = 1 | y = label) of each group; NaN where it has no such row, which makes the objective unknown."""
    positive = _positive(answers)
    inside = [rows[answers.y[rows] == label] for rows in groups]
    unknown = np.full(len(positive), np.nan)
    return [positive[:, rows].mean(axis=1) if len(rows) else unknown for rows in inside]


def _positive(answers: Predictions) -> NDArray[np.bool_]:
    if answers.classes != 2:
        raise DataError(f"parity, opportunity, odds and calibration need two classes; this task has {answers.classes}")
    return np.asarray(answers.predicted == 1)


def _chances(answers: Predictions, name: str) -> NDArray[np.float32]:
    if answers.probabilities is None:
        raise DataError(f"objective {name} needs probabilities, and the learner has no method `chances`")
    return answers.probabilities
