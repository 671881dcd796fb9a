"""Results: what clients say of models on their rows, held against what the server's own rows say of the same models.

A client's rows are another mix of classes than the server's, so that its results may differ from the server's by much.
But whatever its mix p, they lie near the sum over classes of p_c m_c, m_c the mean result of the server's rows of class
c; and the same mix has to explain what it says of all models of a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.objectives import Predictions
from fedmerit.core.types import ClientId, Evaluation, Matrix, Vector
from fedmerit.core.weights.weigh import Note

By: TypeAlias = Literal["loss", "accuracy"]

USUAL_DEVIATION = 2.0
"""So many standard errors from the nearest mix of classes say nothing; twice as many are a note."""
ONE_MORE: Mapping[By, tuple[float, float]] = MappingProxyType({"loss": (1.0, 0.01), "accuracy": (1.0, 1.0)})
"""Each class counts as if it had one more row, at least so far from its mean: a class of rows all right may have one
wrong. Of a result, and of how two results differ."""
FARTHEST = 1e6
"""Results count as at most so many: no claim may overflow."""
SUM_TO_ONE = 1e3
"""How much more the shares' sum of 1 counts in the fit than a standard error."""


@dataclass(frozen=True, slots=True)
class Reports:
    """What clients say of k models, and what the server's rows say.

    clients  whose they are
    values   (clients, k): mean loss or accuracy on the client's rows; NaN where it was not asked
    rows     on how many rows, by client
    own      (k, N): the loss of each row of the server, or whether it is right
    classes  (N,): the class of each row
    by       which of the two it is
    """

    clients: tuple[ClientId, ...]
    values: Matrix
    rows: Vector
    own: Matrix
    classes: NDArray[np.int64]
    by: By


def report(
    answers: Sequence[Evaluation], predictions: Sequence[Predictions], judges: Sequence[ClientId]
) -> Reports | None:
    """Clients' answers about models, with the server's own predictions; None where these are not of classes.

    Answers have a place for every client of the federation, or one for each of the `judges`, in their order. By loss
    where clients were asked for it and the server knows probabilities, else by accuracy.
    """
    if not answers or predictions[0].target.kind != "classes":
        return None
    rows = np.max([answer.sizes for answer in answers], axis=0).astype(np.float64)
    known = all(one.probabilities is not None for one in predictions)
    by: By = "loss" if known and all(answer.losses is not None for answer in answers) else "accuracy"
    values = []
    for answer in answers:
        sums = answer.losses if by == "loss" and answer.losses is not None else answer.correct
        values.append(np.divide(sums, answer.sizes, out=np.full(len(rows), np.nan), where=answer.sizes > 0))
    if len(judges) != len(rows) and max(judges, default=0) >= len(rows):
        return None  # some judges left meanwhile: nobody knows whose answers these are
    clients = tuple(sorted(judges)) if len(judges) == len(rows) else tuple(range(len(rows)))
    return Reports(clients, np.column_stack(values), rows, own_results(predictions, by), predictions[0].y, by)


def own_results(predictions: Sequence[Predictions], by: By) -> Matrix:
    """(k, N): the loss of each row under each model, or 1 where it is right and 0 where not."""
    if by == "accuracy":
        return np.concatenate([one.target.right(one.predicted, one.y) for one in predictions]).astype(np.float64)
    outputs = [(one, row) for one in predictions if one.probabilities is not None for row in one.probabilities]
    return np.stack([one.target.losses(row, one.y) for one, row in outputs])


def agreement(reports: Reports) -> Vector:
    """min(1, 2 / z) for each client, z how many standard errors its results are from the nearest mix of classes.

    Compared are what it says of the first model it was asked about and by how much each other differs from that: the
    noise of its rows is in the first, and mostly not in the differences. z is the largest of them at the mix with the
    least sum of squares. 1 where it was not asked.

    >>> own, classes = np.array([[0.0, 0.2, 2.0, 2.2] * 5]), np.array([0, 0, 1, 1] * 5)
    >>> said = np.array([[0.1], [1.4], [9.0]])
    >>> (agreement(Reports((0, 1, 2), said, np.full(3, 50.0), own, classes, "loss")) < 0.5).tolist()
    [False, False, True]
    """
    found, shared = np.ones(len(reports.rows)), dict[bytes, _Classes]()
    for client, values in enumerate(reports.values):
        asked = ~np.isnan(values)
        if not asked.any() or reports.rows[client] <= 0:
            continue
        key = asked.tobytes()
        if key not in shared:
            shared[key] = _Classes.of(_differences(reports.own[asked]), reports.classes, ONE_MORE[reports.by])
        said = _differences(np.clip(values[asked], -FARTHEST, FARTHEST)[:, np.newaxis])[:, 0]
        found[client] = min(1.0, USUAL_DEVIATION / max(shared[key].deviation(said, reports.rows[client]), 1e-12))
    return found


def result_notes(reports: Reports, values: Vector, took_part: Sequence[ClientId], least: float) -> tuple[Note, ...]:
    """A note for each client whose results agree less than `least`.

    It is `inconsistent` of those who took part in the round, whom their criteria hold to it; of others `results`.
    """
    there, server = set(took_part), reports.own.mean(axis=1)
    notes = []
    for at in np.flatnonzero(values < least).tolist():
        client, asked = reports.clients[at], np.flatnonzero(~np.isnan(reports.values[at]))
        place, others = int(asked[0]), len(asked) - 1
        beside = f", and of {others} more what does not fit to it" if others else ""
        text = (
            f"reports {reports.by} {reports.values[at, place]:.3g} of a model that has {server[place]:.3g} on the "
            f"server's rows{beside}: no mix of their classes gives that"
        )
        notes.append(Note("inconsistent" if client in there else "results", f"{client}: results", text, client))
    return tuple(notes)


def _differences(values: Matrix) -> Matrix:
    """The first row, and how the others differ from it."""
    return np.concatenate([values[:1], values[1:] - values[:1]])


@dataclass(frozen=True, slots=True)
class _Classes:
    """The server's rows by class: (k, classes) means and variances of a row, and (classes,) how many rows."""

    means: Matrix
    variances: Matrix
    counts: Vector

    @classmethod
    def of(cls, values: Matrix, classes: NDArray[np.int64], least: tuple[float, float]) -> _Classes:
        names, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
        member = np.eye(len(names))[place.ravel()]
        means = values @ member / counts
        away = np.square(values - means @ member.T)
        floors = np.square([least[0], *[least[1]] * (len(values) - 1)])
        spare = np.maximum(away.max(axis=1), floors)[:, np.newaxis]
        return cls(means, (away @ member + spare) / counts, counts.astype(np.float64))

    def deviation(self, said: Vector, rows: float) -> float:
        """The largest deviation from the mix of classes that explains most, in standard errors."""
        usual = np.sqrt(self.variances.mean(axis=1) * (1 / rows + 1 / self.counts.mean()))
        table = np.vstack([self.means / usual[:, np.newaxis], np.full(len(self.counts), SUM_TO_ONE)])
        try:
            mix = scipy.optimize.nnls(table, np.append(said / usual, SUM_TO_ONE))[0]
        except RuntimeError:  # it came to no end: that is no evidence, and ends no round
            return 0.0
        mix /= max(float(mix.sum()), 1e-12)
        errors = np.sqrt(self.variances @ (mix / rows + mix**2 / self.counts))
        return float((np.abs(self.means @ mix - said) / np.maximum(errors, 1e-12)).max())
