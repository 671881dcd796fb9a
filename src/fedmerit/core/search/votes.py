"""Votes: what clients say of candidate models, counted so that one judge moves a decision by one vote.

A judge may claim any number of rows and any loss. Its size is capped as weights are, and what it says counts within a
bound that the judges set together. `preferring` counts judges, one vote each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import Vector
from fedmerit.core.weights.limits import OUR_CAP, cap_weights
from fedmerit.core.weights.weigh import shares


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


def preferring(one: Vector, other: Vector) -> float:
    """The share of the judges that gain more by `one` than by `other`; a gain that is not a number is no voice for it.

    >>> preferring(np.array([0.2, 0.3, np.nan]), np.array([0.1, 0.4, 0.0]))
    0.3333333333333333
    """
    with np.errstate(invalid="ignore"):
        return float((one > other).mean()) if len(one) else 0.0
