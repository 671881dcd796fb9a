"""TOPSIS: score by the distances to the best and to the worst value of every criterion."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedmerit.core.parts import Doc, part
from fedmerit.core.types import Matrix, Vector
from fedmerit.core.weights.scores import Term, Terms, check_shares
from fedmerit.errors import ConfigError


@part("score", "topsis")
class Topsis:
    """TOPSIS score d- / (d+ + d-), d+ and d- the distances to the best and the worst value of every criterion [TOPSIS].

    Columns are divided by their Euclidean norm and multiplied by the weights first, as in the original. If all clients
    are equal, all get 1. The score compares clients with each other, so it depends on the clients of the round.

    >>> Topsis()(np.array([[1.0, 1.0], [0.0, 1.0], [0.5, 1.0]])).tolist()
    [1.0, 0.0, 0.5]
    """

    weights: Annotated[tuple[float, ...], Doc("in priority order, sum 1; default: equal")] = ()

    def __post_init__(self) -> None:
        if self.weights:
            check_shares(self.weights, "weights of topsis")

    def __call__(self, table: Matrix) -> Vector:
        """Return 1 for a client that is best in every criterion, 0 for one that is worst in every criterion."""
        to_best, to_worst = self._distances(table)
        total = to_best + to_worst
        return np.asarray(np.divide(to_worst, total, out=np.ones(len(table)), where=total > 0))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """Return d-, divided by d+ + d-."""
        to_best, to_worst = (float(one[place]) for one in self._distances(table))
        if not to_best + to_worst:
            return Terms((Term(tuple(range(table.shape[1])), "1.0000", 1.0),), "sum", score=1.0)
        term = Term(tuple(range(table.shape[1])), f"{to_worst:.4f}", to_worst)
        return Terms((term,), "sum", to_best + to_worst, score=to_worst / (to_best + to_worst))

    def _distances(self, table: Matrix) -> tuple[Vector, Vector]:
        count = table.shape[1]
        if self.weights and len(self.weights) != count:
            raise ConfigError(f"topsis needs one weight for each of {count} criteria (got {len(self.weights)})")
        top = table.max(axis=0)
        scaled = table / np.where(top > 0, top, 1.0)  # divided by the maximum first: a square could overflow
        lengths = np.linalg.norm(scaled, axis=0)
        rated = scaled / np.where(lengths > 0, lengths, 1.0) * (self.weights or 1 / count)
        best, worst = rated.max(axis=0), rated.min(axis=0)
        return np.linalg.norm(rated - best, axis=1), np.linalg.norm(rated - worst, axis=1)
