"""Statistics of paired seeds: the effect with its interval, and p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedmerit.core.types import Vector

LEVEL, ALPHA = 0.95, 0.05
RESAMPLES = 9999
EXACT_UP_TO = 100
"""Seeds up to which Wilcoxon's test is exact."""

DIGITS = 12
"""Decimals of differences: equal shares of test rows are ties, whatever rounding made of them."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A paired difference: its mean over the seeds, `low` and `high` of its interval, Wilcoxon's p, its deviation.

    NaN where there are too few seeds: below one for `difference` and `p`, below two for the rest.
    """

    seeds: int
    difference: float
    low: float
    high: float
    p: float
    sd: float


def paired(differences: Sequence[float] | Vector, *, level: float = LEVEL) -> Paired:
    """Test the differences between two rows, one per seed; a seed whose difference is NaN does not count.

    >>> paired([2.0, 1.0, 3.0]).difference
    2.0
    """
    values = np.asarray(differences, dtype=np.float64).round(DIGITS)
    values = values[~np.isnan(values)]
    mean = float(values.mean()) if len(values) else math.nan
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    sd = 0.0 if len(values) > 1 and np.ptp(values) == 0 else sd  # rounding may leave more than 0
    return Paired(len(values), mean, *interval(values, level=level), wilcoxon(values), sd)


def interval(differences: Sequence[float] | Vector, *, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the mean of paired differences: expanded percentiles [Hesterberg 2015, sec. 5.3.2].

    Seeds are drawn with replacement, 9,999 times. Plain percentiles of few seeds are too narrow, by sqrt((n - 1) / n)
    and by the tails of t; the level is expanded so that it fits normal differences:

        alpha' / 2 = Phi(-sqrt(n / (n - 1)) * t_{1 - alpha / 2, n - 1})

    No resample lies outside the observed differences, so the interval covers with a chance of at most 1 - 2^(1 - n):
    93.75 % with 5 seeds. NaN below two seeds.

    Args:
        differences: one per seed, all known.
        level: 1 - alpha, the coverage that is asked for.
        seed: of the bootstrap's draws; the same differences give the same interval.
    """
    values = np.asarray(differences, dtype=np.float64)
    seeds = len(values)
    if seeds < 2:
        return math.nan, math.nan
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    quantile = math.sqrt(seeds / (seeds - 1)) * scipy.stats.t.ppf((1 + level) / 2, seeds - 1)
    expanded = scipy.stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=1 - 2 * scipy.stats.norm.sf(quantile),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(expanded.low), float(expanded.high)


def wilcoxon(differences: Sequence[float] | Vector) -> float:
    """Two-sided p of the signed-rank test [Wilcoxon]; seeds without a difference are left out.

    With W the sum of the ranks of |d| over the positive differences, p = 2 min(P(W <= w), P(W >= w)), at most 1, where
    all 2^n signs are equally likely. Exact, with ties or without, up to 100 seeds; scipy's normal approximation past
    that. 1 where nothing differs, NaN without any seed. Never below `smallest_p` of the seeds that differ.

    >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    values = np.asarray(differences, dtype=np.float64)
    if not len(values):
        return math.nan
    values = values[values != 0]
    if len(values) > EXACT_UP_TO:
        return float(scipy.stats.wilcoxon(values).pvalue)
    ranks = np.rint(2 * scipy.stats.rankdata(np.abs(values))).astype(np.int64)  # doubled: ties share halves
    counts = np.zeros(int(ranks.sum()) + 1)  # how many of the 2^n signs give each sum of positive ranks
    counts[0] = 1
    for rank in ranks:
        counts[rank:] += counts[:-rank].copy()
    positive = int(ranks[values > 0].sum())
    tail = counts[: min(positive, len(counts) - 1 - positive) + 1].sum()
    return float(min(2 * tail / 2.0 ** len(values), 1.0))


def smallest_p(seeds: int) -> float:
    """The least two-sided p that n paired seeds can give, all signs alike: 2 * 2^-n."""
    return min(2.0 ** (1 - seeds), 1.0)


def seeds_for_p(rows: int, alpha: float = ALPHA) -> int:
    """The fewest seeds with which p, corrected for so many rows, can fall to alpha: 1 + log2(rows / alpha)."""
    return 1 + math.ceil(math.log2(max(rows, 1) / alpha) - 1e-9)


def holm(values: Sequence[float] | Vector) -> Vector:
    """The p of m tests corrected [Holm]: max over j <= i of (m - j + 1) * p_(j), at most 1, with p_(1) <= p_(2) ...

    NaN is not a test: it stays and does not count.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(values, dtype=np.float64)
    corrected = np.full(len(p_values), np.nan)
    order = [place for place in np.argsort(p_values, kind="stable") if not np.isnan(p_values[place])]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return corrected


def restricted(rounds: Sequence[float] | Vector, horizon: float) -> Vector:
    """Rounds to target restricted to the rounds played: min(T, horizon), the horizon where T is NaN (not reached).

    Their mean is the restricted mean time to target. All runs are watched equally long, so it is the area under the
    Kaplan-Meier curve up to the horizon.
    """
    values = np.asarray(rounds, dtype=np.float64)
    return np.minimum(np.where(np.isnan(values), horizon, values), horizon)
