"""Statistics of paired seeds: bootstrap interval, Wilcoxon's test, Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedmerit.core.types import Vector

LEVEL, ALPHA = 0.95, 0.05
RESAMPLES = 9999
EXACT_UP_TO = 100
"""The largest number of seeds for which Wilcoxon's test is exact."""

DIGITS = 12
"""Differences are rounded to this many decimals, so that equal accuracies are ties despite rounding errors."""


@dataclass(frozen=True, slots=True)
class Paired:
    """A paired difference: mean over the seeds, interval from `low` to `high`, Wilcoxon's p, standard deviation.

    NaN with too few seeds: `difference` and `p` need one, the remaining fields two.
    """

    seeds: int
    difference: float
    low: float
    high: float
    p: float
    sd: float


def paired(differences: Sequence[float] | Vector, *, level: float = LEVEL) -> Paired:
    """Test the paired differences between two rows, one per seed; NaN values are ignored.

    >>> paired([2.0, 1.0, 3.0]).difference
    2.0
    """
    values = np.asarray(differences, dtype=np.float64).round(DIGITS)
    values = values[~np.isnan(values)]
    mean = float(values.mean()) if len(values) else math.nan
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    sd = 0.0 if len(values) > 1 and np.ptp(values) == 0 else sd  # rounding errors may make it positive
    return Paired(len(values), mean, *interval(values, level=level), wilcoxon(values), sd)


def interval(differences: Sequence[float] | Vector, *, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the mean of paired differences: expanded percentiles [Hesterberg 2015, sec. 5.3.2].

    Seeds are resampled with replacement 9,999 times. With few seeds, plain percentile intervals are too narrow, by the
    factor sqrt((n - 1) / n) and because they ignore the tails of t. The level is expanded so that the coverage is right
    for normal differences:

        alpha' / 2 = Phi(-sqrt(n / (n - 1)) * t_{1 - alpha / 2, n - 1})

    No resample lies outside the observed differences, so the coverage is at most 1 - 2^(1 - n): 93.75 % with 5 seeds.
    NaN with fewer than two seeds.

    Args:
        differences: one per seed, without NaN.
        level: 1 - alpha, the nominal coverage.
        seed: seed of the bootstrap; the same differences give the same interval.
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
    """Two-sided p-value of the signed-rank test [Wilcoxon]; differences of 0 are dropped.

    With W the sum of the ranks of |d| over the positive differences, p = min(1, 2 min(P(W <= w), P(W >= w))), where all
    2^n signs are equally likely. Exact, also with ties, up to 100 seeds; above that, scipy's normal approximation. It
    is 1 if all differences are 0, and NaN without differences. n seeds cannot give less than 2 * 2^-n.

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


def seeds_for_p(rows: int, alpha: float = ALPHA) -> int:
    """The smallest number of seeds with which Holm's p for this many rows can reach alpha: 1 + log2(rows / alpha)."""
    return 1 + math.ceil(math.log2(max(rows, 1) / alpha) - 1e-9)


def holm(values: Sequence[float] | Vector) -> Vector:
    """Correct the p-values of m tests [Holm]: max over j <= i of (m - j + 1) * p_(j), at most 1; p_(1) <= p_(2) ...

    NaN values stay NaN and do not count as tests.

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
    """Restrict rounds to target to the horizon: min(T, horizon), and the horizon if T is NaN (not reached).

    The mean is the restricted mean time to target. All runs have the same horizon, so it is the area under the
    Kaplan-Meier curve up to the horizon.
    """
    values = np.asarray(rounds, dtype=np.float64)
    return np.minimum(np.where(np.isnan(values), horizon, values), horizon)
