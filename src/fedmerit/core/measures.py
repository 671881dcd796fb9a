"""Measures over clients: percentiles and spread of the local measure, rounds to target [PMCFL, sec. 5.3]."""

import math
from collections.abc import Sequence

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.errors import ConfigError

PERCENTILES = (10, 50, 90)
WORST = 0.1
"""The share of clients with the worst value whose mean is reported."""

TARGETS = (0.7, 0.8, 0.9, 0.95)
"""Default targets, for measures from 0 to 1."""

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the devices for which rounds to target are reported: the columns of the papers' tables."""


def percentiles(local: Vector) -> tuple[float, float, float]:
    """10th, 50th and 90th percentile of the accuracies of clients with test rows."""
    accuracies = local[~np.isnan(local)]
    if not len(accuracies):
        return (float("nan"),) * 3
    low, middle, high = np.percentile(accuracies, PERCENTILES)
    return float(low), float(middle), float(high)


def worst_mean(local: Vector, share: float = WORST, *, lower: bool = False) -> float:
    """Mean of the share of clients (at least one) with the worst value; NaN if it is known nowhere.

    lower    lower is better: the worst values are the highest
    """
    values = np.sort(local[~np.isnan(local)])[:: -1 if lower else 1]
    return float(values[: max(1, int(np.ceil(share * len(values) - 1e-9)))].mean()) if len(values) else float("nan")


def spread(local: Vector) -> float:
    """Standard deviation over the clients; NaN if none has test rows."""
    accuracies = local[~np.isnan(local)]
    return float(accuracies.std()) if len(accuracies) else float("nan")


def rounds_to_target(
    rounds: Sequence[int],
    local: Matrix,
    target: float,
    share: float,
    *,
    or_equal: bool = False,
    lower: bool = False,
) -> int | None:
    """First round in which at least `share` of the devices are better than the target; None if not reached.

    `local` has a row per evaluated round and a column per client. Clients where the measure is not defined are NaN and
    do not count as devices. A device must be strictly above the target, as in the papers' tables, unless `or_equal`;
    below it where `lower` is better.
    """
    if not 0 <= target <= (math.inf if lower else 1) or not 0 < share <= 1:
        raise ConfigError(f"target lies in 0..1 and share in 0..1, above 0 (got {target} and {share})")
    devices = (~np.isnan(local)).sum(axis=1)
    values, target = (-local, -target) if lower else (local, target)
    with np.errstate(invalid="ignore"):
        above = (values >= target if or_equal else values > target).sum(axis=1)
    # Without devices nothing is reached: one is needed at least.
    needed = np.maximum(np.ceil(share * devices - 1e-9), 1)  # 20 % of 371 devices are 75, not 74; 1e-9 for rounding
    reached = np.flatnonzero(above >= needed)
    return int(rounds[reached[0]]) if len(reached) else None
