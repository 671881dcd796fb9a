"""Ranking: any score with its values replaced by ranks, so that the order of clients counts and not the distances."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
import scipy
from annotated_types import Interval

from fedmerit.core.parts import Doc, part
from fedmerit.core.types import Matrix, Vector
from fedmerit.core.weights.scores import Score, Terms, explain_score

Rank: TypeAlias = Literal["borda", "squared", "exponential", "top"]


@part("score", "ranked")
class Ranked:
    """rs_k from the rank r_k of any score: the best of K has K, the worst 1, ties share the mean [FedVal].

    `borda`: r; `squared`: r ** 2; `exponential`: 2 ** (r - K); `top`: r for the best `top` share of the clients, 0 for
    the others. A client whose score is 0 has earned nothing and keeps 0.

    >>> from fedmerit.core.weights.scores import Product
    >>> Ranked(Product(), "borda")(np.array([[0.2], [0.9], [0.0]])).tolist()
    [2.0, 3.0, 0.0]
    """

    score: Annotated[Score, Doc("the score that clients are ranked by")]
    how: Annotated[Rank, Doc("how ranks count")] = "borda"
    top: Annotated[float, Interval(gt=0, le=1), Doc("of `top`: the share of the clients that count")] = 0.5

    def __call__(self, table: Matrix) -> Vector:
        """The same for any monotone change of the score."""
        values = self.score(table)
        return np.asarray(np.where(values > 0, self._worth(scipy.stats.rankdata(values)), 0.0))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """Those of the score, and the client's rank in the table."""
        inner = explain_score(self.score, table, place) or Terms((), "sum", score=float(self.score(table)[place]))
        rank = float(scipy.stats.rankdata(self.score(table))[place])
        return replace(inner, rank=(rank, len(table), self.how), score=float(self(table)[place]))

    def _worth(self, ranks: Vector) -> Vector:
        match self.how:
            case "squared":
                return ranks**2
            case "exponential":
                return np.asarray(2.0 ** (ranks - len(ranks)))
            case "top":
                return np.where(ranks > len(ranks) - np.ceil(self.top * len(ranks) - 1e-9), ranks, 0.0)
        return ranks
