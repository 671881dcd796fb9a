"""Objectives: measures of a model on rows of the server or of clients, 0..1 and higher is better [FedVal].

Errors such as `mae` are for `run.measure` and `run.audit` only: lower is better, and they have no upper bound. `r2` has
no lower bound; as a criterion, values below 0 count as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.targets import CLASSES, Target
from fedmerit.core.types import Vector, mean_by_rows
from fedmerit.errors import ConfigError, DataError, UnknownName

LOWEST = -1e6
"""Lower bound of r2: a diverged model would have -inf, and one client's value must not spoil all means."""
AND = "+"
"""Joins attributes: the groups are the combinations that occur."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of k models for the same N rows: labels `y`, classes `predicted` and, if available, probabilities.

    `predicted` is (k, N), `probabilities` (k, N, classes). Where the `target` is a number, `y` and `predicted` are
    numbers.
    """

    y: NDArray[Any]
    classes: int
    attributes: Mapping[str, NDArray[np.generic]]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float32] | None = None
    target: Target = CLASSES

    def by_class(self, name: str) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.bool_]]]:
        """Yield each class that occurs: which rows have it (N,), and which models predict it (k, N)."""
        self.need(name, "classes")
        yield from ((int(label), self.y == label, self.predicted == label) for label in np.unique(self.y))

    def need(self, name: str, kind: str) -> None:
        """Reject an objective that does not fit the target."""
        if self.target.kind != kind:
            raise DataError(f"objective {name} is for tasks that predict {kind}; this one predicts {self.target.kind}")

    def at(self, rows: NDArray[np.int64]) -> Predictions:
        """The same of some rows."""
        chances = None if self.probabilities is None else self.probabilities[:, rows]
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        return Predictions(self.y[rows], self.classes, attributes, self.predicted[:, rows], chances, self.target)

    def groups(self, attribute: str) -> list[NDArray[np.intp]]:
        """Rows of each group by one attribute, or by several: `sex+race`."""
        columns = [self._column(name) for name in attribute.split(AND)]
        codes = np.unique(
            np.column_stack([np.unique(c, return_inverse=True)[1] for c in columns]), axis=0, return_inverse=True
        )[1]
        return [np.flatnonzero(codes.ravel() == code) for code in range(int(codes.max(initial=-1)) + 1)]

    def _column(self, name: str) -> NDArray[np.generic]:
        if name not in self.attributes:
            names = ", ".join(sorted(self.attributes)) or "none"
            raise DataError(f"the server's rows have no attribute {name!r}; they have: {names}")
        return self.attributes[name]


class Objective(Protocol):
    """A measure of models on the server's rows: one number per model, 0..1; NaN where the rows do not define it.

    >>> say = Predictions(y=np.array([0, 1]), classes=2, attributes={}, predicted=np.array([[0, 0], [0, 1]]))
    >>> find_objective("accuracy")(say).tolist()
    [0.5, 1.0]
    """

    @property
    def name(self) -> str:
        """Name in configuration, ledger and report."""

    def __call__(self, predictions: Predictions) -> Vector:
        """The objective of each model."""


@dataclass(frozen=True, slots=True)
class Overall:
    """An objective over all rows."""

    name: str

    def __call__(self, predictions: Predictions) -> Vector:
        """Apply the function in `OVERALL`."""
        return OVERALL[self.name](predictions)


@dataclass(frozen=True, slots=True)
class RowCount:
    """The number of rows, by which the values of clients are averaged."""

    name: str = "rows"

    def __call__(self, predictions: Predictions) -> Vector:
        """The same for every model."""
        return np.full(len(predictions.predicted), float(len(predictions.y)))


@dataclass(frozen=True, slots=True)
class ByClass:
    """An objective of one class: `recall:2`, and the shares of all rows `label:2` and `predicted:2`."""

    measure: str
    label: int

    @property
    def name(self) -> str:
        """`MEASURE:CLASS`."""
        return f"{self.measure}:{self.label}"

    def __call__(self, predictions: Predictions) -> Vector:
        """Apply the function in `BY_CLASS`; recall is NaN if no row has the class."""
        if self.label >= predictions.classes:
            raise DataError(
                f"{self.name} needs a class below {predictions.classes}, the number of classes (got {self.label})"
            )
        predictions.need(self.name, "classes")
        with np.errstate(invalid="ignore"):
            return BY_CLASS[self.measure](predictions.y == self.label, predictions.predicted == self.label)


@dataclass(frozen=True, slots=True)
class ByGroup:
    """An objective that compares groups: `parity:sex`, `opportunity:sex+race`."""

    measure: str
    attribute: str

    @property
    def name(self) -> str:
        """`MEASURE:ATTRIBUTE`."""
        return f"{self.measure}:{self.attribute}"

    def __call__(self, predictions: Predictions) -> Vector:
        """Apply the function in `GROUPED`; NaN with fewer than two groups."""
        groups = predictions.groups(self.attribute)
        if len(groups) < 2:
            return np.full(len(predictions.predicted), np.nan)
        return GROUPED[self.measure](predictions, groups)


def accuracy(predictions: Predictions) -> Vector:
    """Share of rows that are right: numbers within the tolerance."""
    return np.asarray(_right(predictions).mean(axis=1))


def balanced_accuracy(predictions: Predictions) -> Vector:
    """Recall, averaged over the classes that occur."""
    recalls = [predicted[:, mine].mean(axis=1) for _, mine, predicted in predictions.by_class("balanced_accuracy")]
    return np.asarray(np.mean(recalls, axis=0))


def worst_recall(predictions: Predictions) -> Vector:
    """Lowest recall over the classes that occur: a class that a model never predicts gives 0, whatever the accuracy.

    >>> say = Predictions(np.array([0, 0, 0, 1]), 2, {}, np.array([[0, 0, 0, 0], [0, 1, 0, 1]]))
    >>> worst_recall(say).round(2).tolist()
    [0.0, 0.67]
    """
    recalls = [
        predicted[:, mine].mean(axis=1) for _, mine, predicted in predictions.by_class("worst_recall") if mine.any()
    ]
    return np.asarray(np.min(recalls, axis=0)) if recalls else np.full(len(predictions.predicted), np.nan)


def f1(predictions: Predictions) -> Vector:
    """F1 = 2 x true positives / (rows of the class + rows predicted as it), averaged over the classes that occur."""
    scores = [
        2 * (mine & predicted).sum(axis=1) / (mine.sum() + predicted.sum(axis=1))
        for _, mine, predicted in predictions.by_class("f1")
        if mine.any()
    ]
    return np.asarray(np.mean(scores, axis=0)) if scores else np.full(len(predictions.predicted), np.nan)


def auc(predictions: Predictions) -> Vector:
    """Area under the ROC curve, one class against the rest, averaged over classes.

    It equals the probability that a row of the class ranks above another row, hence the rank sums. NaN if all rows have
    one class.
    """
    predictions.need("auc", "classes")
    chances, areas = _probabilities(predictions, "auc"), []
    for label, mine, _ in predictions.by_class("auc"):
        positives, negatives = int(mine.sum()), int((~mine).sum())
        if positives and negatives:
            ranks = scipy.stats.rankdata(chances[:, :, label], axis=1)[:, mine].sum(axis=1)
            areas.append((ranks - positives * (positives + 1) / 2) / (positives * negatives))
    return np.asarray(np.mean(areas, axis=0)) if areas else np.full(len(chances), np.nan)


def scaled_loss(predictions: Predictions) -> Vector:
    """1 - cross-entropy / ln(classes), at least 0: a uniform guess has 0."""
    predictions.need("loss", "classes")
    probabilities = _probabilities(predictions, "loss")[:, np.arange(len(predictions.y)), predictions.y]
    entropy = -np.log(np.maximum(probabilities.astype(np.float64), 1e-12)).mean(axis=1)
    return np.asarray(np.maximum(1 - entropy / np.log(predictions.classes), 0.0))


def worst_group(predictions: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """Accuracy of the worst group."""
    right = _right(predictions)
    return np.asarray(np.min([right[:, rows].mean(axis=1) for rows in groups], axis=0))


def parity(predictions: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - largest difference between groups of P(predicted = 1)."""
    return 1 - _spread([_positive(predictions)[:, rows].mean(axis=1) for rows in groups])


def opportunity(predictions: Predictions, groups: list[NDArray[np.intp]]) -> Vector:
    """1 - largest difference between groups of P(predicted = 1 | y = 1); NaN if a group has no such row."""
    positive = _positive(predictions)
    inside = [rows[predictions.y[rows] == 1] for rows in groups]
    unknown = np.full(len(positive), np.nan)
    return 1 - _spread([positive[:, rows].mean(axis=1) if len(rows) else unknown for rows in inside])


def r2(predictions: Predictions) -> Vector:
    """R^2 of numbers: 1 - squared errors / squared distances from their mean; below 0 is worse than the mean.

    NaN if all numbers are equal, at least `LOWEST` if a model diverged. As a criterion, values below 0 count as 0.
    """
    predictions.need("r2", "number")
    total = float(np.square(predictions.y - predictions.y.mean()).sum()) if len(predictions.y) else 0.0
    if not total > 0:
        return np.full(len(predictions.predicted), np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.square(predictions.predicted.astype(np.float64) - predictions.y).sum(axis=1)
        return np.asarray(np.maximum(np.nan_to_num(1 - errors / total, nan=LOWEST), LOWEST))


def mae(predictions: Predictions) -> Vector:
    """Mean absolute error of numbers, in units of the label; lower is better; not for weights."""
    predictions.need("mae", "number")
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs(predictions.predicted.astype(np.float64) - predictions.y).mean(axis=1)
    return np.where(np.isfinite(errors), errors, np.nan)


def log_loss(predictions: Predictions) -> Vector:
    """Mean loss of a row: cross-entropy, or log(1 + (error / tolerance)^2) of numbers; lower is better."""
    numbers = predictions.target.kind == "number"
    outputs = predictions.predicted if numbers else _probabilities(predictions, "log_loss")
    return np.array([predictions.target.losses(of_model, predictions.y).mean() for of_model in outputs])


OVERALL: Mapping[str, Callable[[Predictions], Vector]] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "worst_recall": worst_recall,
    "f1": f1,
    "auc": auc,
    "loss": scaled_loss,
    "r2": r2,
    "mae": mae,
    "log_loss": log_loss,
}
LOSS, ERRORS = "loss", ("mae", "log_loss")
"""Objectives for which lower is better; never criteria."""
BY_CLASS: Mapping[str, Callable[[NDArray[np.bool_], NDArray[np.bool_]], Vector]] = {
    "recall": lambda mine, predicted: np.asarray((mine & predicted).sum(axis=1) / mine.sum()),
    "label": lambda mine, predicted: np.full(len(predicted), mine.mean()),
    "predicted": lambda mine, predicted: np.asarray(predicted.mean(axis=1)),
}
ROWS = RowCount()
GROUPED: Mapping[str, Callable[[Predictions, list[NDArray[np.intp]]], Vector]] = {
    "parity": parity,
    "opportunity": opportunity,
    "worst_group": worst_group,
}


def find_objective(name: str) -> Objective:
    """Find an objective by name: `accuracy`, or `parity:ATTRIBUTE`."""
    measure, colon, attribute = name.partition(":")
    if measure in OVERALL and not colon:
        return Overall(measure)
    if name == ROWS.name:
        return ROWS
    if measure in GROUPED and attribute:
        return ByGroup(measure, attribute)
    if measure in BY_CLASS and attribute.isdecimal():
        return ByClass(measure, int(attribute))
    names = [*OVERALL, *(f"{each}:CLASS" for each in BY_CLASS), *(f"{each}:ATTRIBUTE" for each in GROUPED)]
    raise UnknownName("objective", name, names)


def check_rising(objective: Objective) -> None:
    """Reject errors as criteria, where higher is better."""
    if objective.name in ERRORS:
        raise ConfigError(
            f"a criterion needs an objective where higher is better; {objective.name} is an error, for run.measure and "
            "run.audit: use r2, as in validated:r2"
        )


def worst_value(objective: str, values: Iterable[float]) -> float | None:
    """Worst of an objective's values; None without values.

    >>> worst_value("auc", [0.7, 0.9]), worst_value("mae", [1.5, 4.0])
    (0.7, 4.0)
    """
    return (max if is_error(objective) else min)(values, default=None)


def is_error(name: str) -> bool:
    """Whether lower is better: errors, and losses of a Flower app, while our own `loss` is scaled so that 1 is best.

    >>> is_error("mae"), is_error("eval_loss"), is_error("loss"), is_error("eval_acc")
    (True, True, False, False)
    """
    return name in ERRORS or "error" in name or ("loss" in name and name != LOSS)


def direction(measure: str) -> int:
    """1 if higher is better, -1 for an error.

    >>> direction("auc"), direction("mae")
    (1, -1)
    """
    return -1 if is_error(measure) else 1


def measure_label(measure: str) -> str:
    """The measure as titles call it.

    >>> measure_label("auc"), measure_label("balanced_accuracy")
    ('AUC', 'balanced accuracy')
    """
    return measure.upper() if measure in ("auc", "f1", "mae", "r2") else measure.replace("_", " ")


def is_share(measure: str) -> bool:
    """Whether the measure is a share of rows, which texts give in per cent."""
    return measure.partition(":")[0] in ("accuracy", "balanced_accuracy", "worst_recall", "recall", "worst_group")


def row_mean(audited: Mapping[Any, Mapping[str, float]], name: str) -> float:
    """Mean of an objective over the clients where it is known, weighted by their `rows`; NaN if it is known nowhere.

    >>> row_mean({0: {"auc": 0.8, "rows": 30}, 1: {"auc": 0.6, "rows": 10}, 2: {"auc": float("nan"), "rows": 9}}, "auc")
    0.75
    """
    values, rows = ([of_client[key] for of_client in audited.values()] for key in (name, ROWS.name))
    return mean_by_rows(np.array(values), np.array(rows))


def _right(predictions: Predictions) -> NDArray[np.bool_]:
    return predictions.target.right(predictions.predicted, predictions.y)


def _spread(values: list[Vector]) -> Vector:
    table = np.stack(values)
    return np.asarray(table.max(axis=0) - table.min(axis=0))


def _positive(predictions: Predictions) -> NDArray[np.bool_]:
    predictions.need("parity and opportunity", "classes")
    if predictions.classes != 2:
        raise DataError(f"parity and opportunity need two classes (got {predictions.classes}); remove them")
    return np.asarray(predictions.predicted == 1)


def _probabilities(predictions: Predictions, name: str) -> NDArray[np.float32]:
    if predictions.probabilities is None:
        raise DataError(f"objective {name} needs probabilities, but the learner has no method `predict_proba`")
    return predictions.probabilities
