"""Scores: from the normalised criteria of a client, in priority order, to one number.

A table has one row per client and one column per criterion, the most important first; values lie in 0..1. Every score
explains itself: `terms(table, place)` are the addends or factors that one client's score is made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy
from annotated_types import Interval

from fedmerit.core.parts import ACCOUNTED, Doc, part
from fedmerit.core.types import Matrix, Vector
from fedmerit.errors import ConfigError

SUM_TOLERANCE = 1e-6
Join: TypeAlias = Literal["sum", "product"]
SIGNS = {"sum": " + ", "product": " * "}


@dataclass(frozen=True, slots=True)
class Term:
    """One addend or factor of a score: its value, the columns that it speaks of, and its arithmetic in numbers."""

    columns: tuple[int, ...]
    text: str
    value: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What one client's score is made of: `join` of the terms, then the rank that takes its place.

    rank    None, or (the client's rank, the number of clients, how ranks count): 1 is the worst
    score   what comes out

    >>> str(Prioritized().terms(np.array([[0.5, 0.4]])))
    '0.5000 + 0.5000 * 0.4000 = 0.7'
    """

    terms: tuple[Term, ...]
    join: Join
    rank: tuple[float, int, str] | None = None
    score: float = float("nan")

    @property
    def joined(self) -> float:
        """The terms put together, before any rank takes their place."""
        values = [term.value for term in self.terms]
        return sum(values) if self.join == "sum" else math.prod(values)

    def __str__(self) -> str:
        whole = SIGNS[self.join].join(term.text for term in self.terms)
        if self.rank is None:
            return f"{whole} = {self.score:.5g}" if " " in whole else f"{self.score:.5g}"
        place, clients, how = self.rank
        counts = f"rank {place:g} of {clients} from below, which counts {self.score:.5g} ({how})"
        return f"{whole} = {self.joined:.5g}, {counts}"


class Score(Protocol):
    """One number per row of the table; higher is better, never negative.

    >>> Product()(np.array([[0.5, 0.4], [1.0, 0.0]])).tolist()
    [0.2, 0.0]
    """

    def __call__(self, table: Matrix) -> Vector:
        """Score every client; columns are in priority order."""


@runtime_checkable
class ExplainedScore(Score, Protocol):
    """A score that says what it is made of; all of ours do."""

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """The addends or factors of the score of the client in this row of the table."""


def explain_score(score: Score, table: Matrix, place: int) -> Terms | None:
    """The terms of one client's score; None for a user-defined score without an explanation."""
    return score.terms(table, place) if isinstance(score, ExplainedScore) else None


def _sum(terms: Sequence[Term]) -> Terms:
    return Terms(tuple(terms), "sum", score=sum(term.value for term in terms))


def _prioritized_terms(row: Vector) -> list[Term]:
    """c_1, c_1 c_2, c_1 c_2 c_3 ...: lambda_i c_i written out."""
    return [
        Term(tuple(range(i + 1)), " * ".join(f"{value:.4f}" for value in row[: i + 1]), float(np.prod(row[: i + 1])))
        for i in range(len(row))
    ]


def _weighted_terms(values: Sequence[float], weights: Sequence[float], columns: Sequence[Sequence[int]]) -> list[Term]:
    """weight x value, one for each."""
    return [
        Term(tuple(int(column) for column in places), f"{weight:.4f} * {value:.4f}", float(weight * value))
        for value, weight, places in zip(values, weights, columns, strict=True)
    ]


def importance(table: Matrix) -> Matrix:
    """lambda_1 = 1, lambda_i = lambda_{i-1} * c_{i-1}: how far better criteria let column i count."""
    ones = np.ones((len(table), 1))
    return np.asarray(np.cumprod(np.hstack([ones, table[:, :-1]]), axis=1), dtype=np.float64)


@part("score", "prioritized")
class Prioritized:
    """s = sum_i lambda_i c_i = c_1 + c_1 c_2 + c_1 c_2 c_3 ... [PMCFL, eq. 6]; range 0..m.

    lambda_1 = 1 and lambda_i = lambda_{i-1} c_{i-1}: a criterion counts as far as the better ones let it.

    >>> Prioritized()(np.array([[0.5, 0.4], [0.0, 1.0]])).tolist()
    [0.7, 0.0]
    """

    gives = ACCOUNTED

    def __call__(self, table: Matrix) -> Vector:
        """A zero at one place removes every later term."""
        return np.asarray((importance(table) * table).sum(axis=1))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """c_1 + c_1 c_2 + ..."""
        return _sum(_prioritized_terms(table[place]))


@part("score", "lexicographic")
class Lexicographic:
    """s = n - rank of n clients sorted by the first criterion, ties by the second, and so on.

    "First this, then that": a later criterion decides only between clients that are equal in all earlier ones. Ranks
    count from 0 for the best client, and tied clients share the mean of their ranks. So the best of n clients scores n,
    the worst 1, and the distance between two values does not matter. Even a client that is 0 in every criterion gets
    a weight: 0 is only the lowest value.

    >>> Lexicographic()(np.array([[0.5, 0.4], [0.9, 0.1], [0.5, 0.8], [0.1, 1.0]])).tolist()
    [2.0, 4.0, 3.0, 1.0]
    """

    def __call__(self, table: Matrix) -> Vector:
        """Ranks from below: n for the best client, 1 for the worst."""
        # np.unique sorts rows lexicographically, ascending: the cumulated counts are the highest rank of each group.
        _, group, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
        return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[group.reshape(-1)])

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """n - rank."""
        clients, score = len(table), float(self(table)[place])
        return _sum([Term(tuple(range(table.shape[1])), f"{clients} - {clients - score:g}", score)])


@part("score", "weighted-mean")
class WeightedMean:
    """s = sum_i v_i c_i, weights v summing to 1; equal weights where none are given.

    `weights` are in priority order, one per criterion.

    >>> WeightedMean((0.75, 0.25))(np.array([[0.4, 0.8]])).tolist()
    [0.5]
    """

    weights: Annotated[tuple[float, ...], Doc("in priority order, sum 1; default: equal")] = ()

    gives = ACCOUNTED

    def __post_init__(self) -> None:
        if self.weights:
            check_shares(self.weights, "weights of weighted-mean")

    def __call__(self, table: Matrix) -> Vector:
        """A low value can be made good by a high one."""
        return np.asarray(table @ self._shares(table.shape[1]))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """v_i c_i."""
        m = table.shape[1]
        return _sum(_weighted_terms(table[place], self._shares(m).tolist(), [[i] for i in range(m)]))

    def _shares(self, m: int) -> Vector:
        return _fitting(self.weights, m, "weighted-mean") if self.weights else np.full(m, 1 / m)


@part("score", "product")
class Product:
    """s = prod_i c_i, the quality of a client [M2F, eq. 12].

    >>> Product()(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [0.25, 0.0]
    """

    gives = ACCOUNTED

    def __call__(self, table: Matrix) -> Vector:
        """A zero anywhere is a zero."""
        return np.asarray(table.prod(axis=1))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """c_i."""
        terms = tuple(Term((i,), f"{value:.4f}", float(value)) for i, value in enumerate(table[place]))
        return Terms(terms, "product", score=math.prod(term.value for term in terms))


@part("score", "owa")
class OWA:
    """s = sum_i w_i b_i, b the row sorted from best to worst, weights w summing to 1 [Yager 1988].

    Weights (1, 0) take the best value, (0, 1) the worst, equal ones the mean.

    >>> OWA((0.5, 0.5))(np.array([[0.25, 0.75]])).tolist()
    [0.5]
    """

    weights: Annotated[tuple[float, ...], Doc("best value first, sum 1")]

    gives = ACCOUNTED

    def __post_init__(self) -> None:
        check_shares(self.weights, "weights of owa")

    def __call__(self, table: Matrix) -> Vector:
        """Which criterion a value belongs to does not matter, only its rank in the row."""
        return np.asarray(-np.sort(-table, axis=1) @ _fitting(self.weights, table.shape[1], "owa"))

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """w_j b_j, the best value first."""
        row = table[place]
        order = np.argsort(-row, kind="stable")
        return _sum(
            _weighted_terms(row[order], _fitting(self.weights, len(row), "owa").tolist(), [[place] for place in order])
        )


@part("score", "choquet")
class Choquet:
    """s = sum_i phi_i c_i - 1/2 sum_{i<j} I_ij abs(c_i - c_j): the 2-additive Choquet integral [Choquet].

    Criteria may count together: a positive interaction rewards two that are met at once, a negative one keeps two that
    repeat each other from counting twice. The score never falls when a value rises, which needs
    phi_i >= 1/2 sum_j |I_ij|.

    shapley      phi, how much each criterion counts, in priority order; sum 1
    interaction  (i, j, I_ij) of pairs of places in the priority

    >>> Choquet((0.5, 0.5), ((0, 1, 0.4),))(np.array([[0.25, 0.75]])).round(3).tolist()
    [0.4]
    """

    shapley: Annotated[tuple[float, ...], Doc("how much each criterion counts, in priority order, sum 1")]
    interaction: Annotated[
        tuple[tuple[int, int, float], ...], Doc("[i, j, value] of pairs of criteria, by their places from 0")
    ] = ()

    gives = ACCOUNTED

    def __post_init__(self) -> None:
        check_shares(self.shapley, "shapley of choquet")
        places, pairs = range(len(self.shapley)), {(i, j) for i, j, _ in self.interaction}
        if len(pairs) < len(self.interaction) or not all(i in places and j in places and i < j for i, j in pairs):
            raise ConfigError(
                f"interaction of choquet names each pair once, as [i, j, value] with i < j < {len(places)} "
                f"(got {list(self.interaction)})"
            )
        for place, phi in enumerate(self.shapley):
            half = sum(abs(value) for i, j, value in self.interaction if place in (i, j)) / 2
            if not phi >= half - SUM_TOLERANCE:
                raise ConfigError(
                    f"choquet: the Shapley value {phi:g} of criterion {place} is below half of its interactions "
                    f"({half:g}), so that a better value could lower the score; raise the one or lower the others"
                )

    def __call__(self, table: Matrix) -> Vector:
        """Column i of the table is criterion i."""
        scores = table @ _fitting(self.shapley, table.shape[1], "choquet")
        for i, j, value in self.interaction:
            scores = scores - value / 2 * np.abs(table[:, i] - table[:, j])
        return np.asarray(np.maximum(scores, 0.0))  # below 0 by rounding only

    def terms(self, table: Matrix, place: int = 0) -> Terms:
        """phi_i * c_i for each criterion, and -I_ij / 2 * |c_i - c_j| for each pair."""
        row = table[place]
        apart = [abs(row[i] - row[j]) for i, j, _ in self.interaction]
        halves = [-value / 2 for _, _, value in self.interaction]
        columns = [*([i] for i in range(len(row))), *([i, j] for i, j, _ in self.interaction)]
        return _sum(_weighted_terms([*row, *apart], [*self.shapley, *halves], columns))


def check_shares(values: Sequence[float], what: str) -> None:
    """Shares are finite, not negative and sum to 1."""
    array = np.array(values, dtype=float)
    if not len(array) or not np.isfinite(array).all() or (array < 0).any() or abs(array.sum() - 1) > SUM_TOLERANCE:
        raise ConfigError(f"{what} are >= 0 and sum to 1; got {list(values)} with sum {array.sum():g}")


def _fitting(values: Sequence[float], m: int, what: str) -> Vector:
    if len(values) != m:
        raise ConfigError(f"{what}: {len(values)} values for {m} criteria; give one per criterion, in priority order")
    return np.array(values, dtype=float)


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
