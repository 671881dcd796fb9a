"""Measures of a run: percentiles and spread of local accuracy, rounds to target [PMCFL, sec. 5.3]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.errors import ConfigError

PERCENTILES = (10, 50, 90)
WORST = 0.1
"""The share of the clients whose mean accuracy is told as that of the worst."""

TARGETS = (0.7, 0.8, 0.9, 0.95)
"""Target accuracies where nobody names others."""

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the devices for which rounds to target are told: the columns of the papers' tables."""


def percentiles(local: Vector) -> tuple[float, float, float]:
    """10th, 50th and 90th percentile of the accuracies of clients that have test rows."""
    known = local[~np.isnan(local)]
    if not len(known):
        return (float("nan"),) * 3
    low, middle, high = np.percentile(known, PERCENTILES)
    return float(low), float(middle), float(high)


def worst_mean(local: Vector, share: float = WORST) -> float:
    """The mean accuracy of the share of the clients (at least one) that has the lowest; NaN where none is known."""
    known = np.sort(local[~np.isnan(local)])
    return float(known[: max(1, int(np.ceil(share * len(known) - 1e-9)))].mean()) if len(known) else float("nan")


def spread(local: Vector) -> float:
    """The standard deviation over the clients; NaN where none is known."""
    known = local[~np.isnan(local)]
    return float(known.std()) if len(known) else float("nan")


def rounds_to_target(
    rounds: Sequence[int], local: Matrix, target: float, share: float, *, or_equal: bool = False
) -> int | None:
    """The first round in which at least `share` of the devices are above the target accuracy; None: not reached.

    `local` has a row per evaluated round and a column per client, NaN for clients without test rows, which do not
    count as devices. Above means strictly (as in the papers' tables) unless `or_equal`.
    """
    if not 0 <= target <= 1 or not 0 < share <= 1:
        raise ConfigError(f"target lies in 0..1 and share in 0..1, above 0; got target {target}, share {share}")
    devices = (~np.isnan(local)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        above = (local >= target if or_equal else local > target).sum(axis=1)
    needed = np.maximum(np.ceil(share * devices - 1e-9), 1)  # 20 % of 371 devices are 75, not 74
    reached = np.flatnonzero(above >= needed)
    return int(rounds[reached[0]]) if len(reached) else None
