"""Votes: what clients say of candidate models, counted so that one judge moves a decision by one vote.

A judge may claim any number of rows, any accuracy and any loss. Its size is capped as weights are, its accuracy lies in
0..1, and its losses count by rank or within a bound that the other judges set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fedmerit.core.caps import OUR_CAP, cap_weights
from fedmerit.core.types import Matrix, Vector
from fedmerit.core.weights import shares


def vote_weights(sizes: Vector | NDArray[np.int64], cap: float = OUR_CAP) -> Vector:
    """Each judge's part of the vote: its share of all rows, at most `cap` equal shares among those who answered.

    >>> vote_weights(np.array([1_000_000, 30, 10, 0]), cap=1.5).round(3).tolist()
    [0.5, 0.375, 0.125, 0.0]
    """
    counted = np.asarray(np.where(np.isfinite(sizes) & (sizes > 0), sizes, 0.0), np.float64)
    votes, answered = np.zeros(len(counted)), counted > 0
    if answered.any():
        votes[answered] = cap_weights(shares(counted[answered]), cap)
    return votes


def count_accuracy(
    correct: Vector | NDArray[np.int64], sizes: Vector | NDArray[np.int64], cap: float = OUR_CAP
) -> float:
    """sum_i v_i * correct_i / size_i with v the `vote_weights`: one judge of n moves it by at most cap / n.

    NaN where nobody answered. With equal sizes it is the share of all rows that are right.

    >>> count_accuracy(np.array([9, 5, 10**6]), np.array([10, 10, 10**6]), cap=1)
    0.8
    """
    votes = vote_weights(sizes, cap)
    if not votes.any():
        return float("nan")
    right = np.divide(correct, sizes, out=np.zeros(len(votes)), where=votes > 0)
    return float(votes @ np.clip(np.nan_to_num(right), 0.0, 1.0))


def count_ranks(losses: Matrix, votes: Vector) -> Vector:
    """Of each candidate (a row per candidate, a column per judge) the share of the vote that ranks it above others.

    A judge gives 1 to its best candidate, 0 to its worst, the same to those that it finds alike, and nothing else
    counts: neither the size of its losses nor what it finds bad. One judge moves a candidate by at most its vote. A
    judge with any loss that is not a number finds all alike.

    >>> count_ranks(np.array([[0.5, 0.1], [0.6, 1e300], [0.7, 0.2]]), np.array([0.5, 0.5])).tolist()
    [1.0, 0.25, 0.25]
    """
    if len(losses) < 2:
        return np.full(len(losses), float(votes.sum()))
    known = np.where(np.isnan(losses).any(axis=0), 0.0, losses)
    ranks = (len(losses) - rankdata(known, axis=0)) / (len(losses) - 1)
    return np.asarray(ranks @ votes)


def count_change(losses: Vector, reference: Vector, votes: Vector, k: float = 3.0) -> float:
    """sum_i v_i * d_i, d_i the judge's loss minus its loss of the reference, within k medians of all |d|.

    Below 0: the candidate is better than the reference. One judge moves it by at most 2 k v_i medians. A judge whose
    losses are not numbers says nothing.

    >>> round(count_change(np.array([0.9, 0.8, 1e9]), np.array([1.0, 1.0, 1.0]), np.full(3, 1 / 3), k=1), 9)
    -0.033333333
    """
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.nan_to_num(np.asarray(losses - reference, np.float64))
    asked = votes > 0
    bound = k * float(np.median(np.abs(change[asked]))) if asked.any() else 0.0
    return float(votes @ np.clip(change, -bound, bound))
