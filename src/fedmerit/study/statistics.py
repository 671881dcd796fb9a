"""Statistics of paired seeds: effect first, p second, and how many seeds would tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedmerit.core.types import Vector
from fedmerit.errors import ConfigError

LEVEL, ALPHA, POWER = 0.95, 0.05, 0.8
RESAMPLES = 9999
EXACT_UP_TO = 100
DIGITS = 12
"""Decimals of differences: shares of test rows that are equal shall be ties, whatever rounding made of them."""

MOST_SEEDS = 100_000


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference over paired seeds: its mean, an interval around it, Wilcoxon's p; NaN where too few seeds tell."""

    seeds: int
    difference: float
    low: float
    high: float
    p: float
    sd: float


def paired(differences: Sequence[float] | Vector, *, level: float = LEVEL) -> Paired:
    """Of the differences, one per seed; a seed whose difference is unknown (NaN) does not count."""
    values = np.asarray(differences, dtype=np.float64).round(DIGITS)
    values = values[~np.isnan(values)]
    mean = float(values.mean()) if len(values) else math.nan
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    sd = 0.0 if len(values) > 1 and np.ptp(values) == 0 else sd  # not what rounding leaves of it
    return Paired(len(values), mean, *interval(values, level=level), wilcoxon(values), sd)


def interval(differences: Sequence[float] | Vector, *, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the mean of paired differences: expanded percentiles (Hesterberg 2015, section 5.3.2).

    Seeds are drawn with replacement. Plain percentiles of few seeds are too narrow by sqrt((n - 1) / n) and by the
    tails of t; here the level is expanded so that for normal differences it fits: alpha' / 2 = Phi(-sqrt(n / (n - 1)) *
    t_{alpha / 2, n - 1}). No resample lies outside the observed differences, so the interval covers with a chance of
    at most 1 - 2 ** (1 - n): 93.75 % with 5 seeds. NaN below two seeds.
    """
    values = np.asarray(differences, dtype=np.float64)
    number = len(values)
    if number < 2:
        return math.nan, math.nan
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    reach = math.sqrt(number / (number - 1)) * scipy.stats.t.ppf((1 + level) / 2, number - 1)
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=1 - 2 * scipy.stats.norm.sf(reach),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def wilcoxon(differences: Sequence[float] | Vector) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; seeds without a difference say nothing and are left out.

    Exact over all signs, with ties or without, up to 100 seeds; scipy's normal approximation past that. 1 where nothing
    differs, NaN without any seed. It is never below `smallest_p` of the seeds that differ.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not len(values):
        return math.nan
    values = values[values != 0]
    if len(values) > EXACT_UP_TO:
        return float(scipy.stats.wilcoxon(values).pvalue)
    ranks = np.rint(2 * scipy.stats.rankdata(np.abs(values))).astype(np.int64)  # twice, since ties share halves
    ways = np.zeros(int(ranks.sum()) + 1)  # in how many ways signs give each sum of positive ranks
    ways[0] = 1
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    up = int(ranks[values > 0].sum())
    tail = ways[: min(up, len(ways) - 1 - up) + 1].sum()
    return float(min(2 * tail / 2.0 ** len(values), 1.0))


def smallest_p(seeds: int) -> float:
    """The least two-sided p that so many pairs can give: all signs alike, 2 * 2 ** -n."""
    return min(2.0 ** (1 - seeds), 1.0)


def seeds_for_p(rows: int, alpha: float = ALPHA) -> int:
    """From how many seeds on p, corrected for so many rows, can fall to alpha at all."""
    return 1 + math.ceil(math.log2(max(rows, 1) / alpha) - 1e-9)


def holm(values: Sequence[float] | Vector) -> Vector:
    """Holm's correction for many tests: p_(i) * (m - i + 1), never falling, at most 1; NaN is no test and stays."""
    ps = np.asarray(values, dtype=np.float64)
    corrected = np.full(len(ps), np.nan)
    order = [place for place in np.argsort(ps, kind="stable") if not np.isnan(ps[place])]
    times = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(ps[order] * times), 1.0)
    return corrected


def restricted(rounds: Sequence[float] | Vector, horizon: float) -> Vector:
    """Rounds to a target as far as they were watched: min(T, horizon), a NaN being censored at the horizon.

    Their mean is the restricted mean time to target, the area under the Kaplan-Meier curve up to the horizon: all runs
    are watched equally long, so no other weighting is needed.
    """
    values = np.asarray(rounds, dtype=np.float64)
    return np.minimum(np.where(np.isnan(values), horizon, values), horizon)


def seeds_needed(sd: float, difference: float, *, power: float = POWER, alpha: float = ALPHA) -> int | None:
    """Paired seeds with which a t test sees a true difference with this power, given the deviation of differences.

    The smallest n with P(|T| > t_{1 - alpha / 2, n - 1}) >= power, T noncentral t with n - 1 degrees of freedom and
    noncentrality sqrt(n) * difference / sd. None past 100,000 seeds, or where the deviation is unknown.
    """
    if difference == 0:
        raise ConfigError("no number of seeds shows a difference of 0; give the difference that would matter to you")
    if math.isnan(sd):
        return None
    if sd == 0:
        return 2
    effect, low, high = abs(difference) / sd, 1, 2
    while _power(high, effect, alpha) < power:
        low, high = high, high * 2
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _power(middle, effect, alpha) >= power else (middle, high)
    return high


def _power(seeds: int, effect: float, alpha: float) -> float:
    """Of a two-sided paired t test; the other tail, where scipy cannot tell it (NaN), is below 1e-8."""
    away, critical = math.sqrt(seeds) * effect, scipy.stats.t.isf(alpha / 2, seeds - 1)
    tails = scipy.stats.nct.sf(critical, seeds - 1, away), scipy.stats.nct.cdf(-critical, seeds - 1, away)
    return float(np.nan_to_num(tails).sum())
