"""Gains of clients over training alone, and how they go with contributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fedmerit.core.types import ClientId, Vector


@dataclass(frozen=True, slots=True)
class Gains:
    """Contribution, standalone accuracy and final accuracy of each client; NaN for clients without test rows.

    >>> gains = Gains(np.array([1.0, 2, 3]), np.array([0.5, 0.6, 0.7]), np.array([0.6, 0.8, 0.7]))
    >>> gains.gain.round(2).tolist(), gains.below, round(gains.measures["mean"], 2)
    ([0.1, 0.2, 0.0], (), 0.1)
    """

    contribution: Vector
    standalone: Vector
    final: Vector

    @property
    def gain(self) -> Vector:
        """Final accuracy minus standalone accuracy."""
        return self.final - self.standalone

    @property
    def below(self) -> tuple[ClientId, ...]:
        """Clients whose final accuracy is below their standalone accuracy."""
        return tuple(np.flatnonzero(self.gain < 0).tolist())

    @property
    def measures(self) -> dict[str, float]:
        """Measures over all clients; NaN if undefined.

        `mean` and `spread` are the mean and the standard deviation of the gains [CYCle]. `pearson` and `spearman`
        correlate contribution with gain, `pearson_final` contribution with final accuracy, and `pearson_standalone`
        standalone with final accuracy, which [RFFL] and [CGSV] call fairness.
        """
        gains = self.gain[~np.isnan(self.gain)]
        return {
            "pearson": correlation(stats.pearsonr, self.contribution, self.gain),
            "spearman": correlation(stats.spearmanr, self.contribution, self.gain),
            "pearson_final": correlation(stats.pearsonr, self.contribution, self.final),
            "pearson_standalone": correlation(stats.pearsonr, self.standalone, self.final),
            "mean": float(gains.mean()) if len(gains) else math.nan,
            "spread": float(gains.std()) if len(gains) else math.nan,
        }


def correlation(measure: Callable[..., Any], x: Vector, y: Vector) -> float:
    """A correlation over the pairs without NaN; NaN with fewer than three of them, or where x or y is constant."""
    valid = ~(np.isnan(x) | np.isnan(y))
    x, y = x[valid], y[valid]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(measure(x, y).statistic)
