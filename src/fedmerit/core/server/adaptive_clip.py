"""Adaptive clip: the length that updates are cut to follows a private quantile of their lengths (Andrew et al. 2021).

    share = 1/2 + (sum_k (b_k - 1/2) + N(0, s^2)) / (q K),    b_k = 1 where |update_k| <= C, else 0
    C     = C * exp(-rate * (share - quantile))

A client moves the sum of b_k - 1/2 by at most 1/2. Together with the sum of the updates, noised by z' C, that is one
Gaussian mechanism whose multiplier z has 1 / z^2 = 1 / z'^2 + 1 / (2 s)^2. So the account stays that of z, and the
updates get slightly more noise for the quantile's sake:

    z' = (z^-2 - (2 s)^-2)^(-1/2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.errors import ConfigError

OF_EXPECTED = 20
"""The noise on the count of short updates is this part of the clients that a round expects, as in the paper."""


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """C moves towards the `quantile` of the lengths of the updates, by `rate`, from `start`.

    >>> clip = AdaptiveClip(start=1.0)
    >>> clip.after(1.0, np.array([0.5, 0.6, 0.7, 3.0]), noise_on_count=0.0, expected=4)  # three of four fit: shorter
    0.951229424500714
    """

    start: float = 0.1
    quantile: float = 0.5
    rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.start < np.inf:
            raise ConfigError(f"privacy.clip_start is the first length, above 0; got {self.start}")
        if not 0 < self.quantile < 1:
            raise ConfigError(f"privacy.quantile is the share of updates that stay whole, in 0..1; got {self.quantile}")
        if not 0 < self.rate < np.inf:
            raise ConfigError(f"privacy.clip_rate is how fast the clip moves, above 0; got {self.rate}")

    @staticmethod
    def count_deviation(noise: float, expected: float) -> float:
        """s: a twentieth of the expected clients, but no less than z, so that the updates' share of the noise exists.

        >>> AdaptiveClip.count_deviation(1.0, expected=100), AdaptiveClip.count_deviation(1.0, expected=8)
        (5.0, 1.0)
        """
        return max(expected / OF_EXPECTED, noise)

    @staticmethod
    def noise_on_updates(noise: float, expected: float) -> float:
        """z': with it and the noise on the count, a round costs what z alone costs.

        >>> round(AdaptiveClip.noise_on_updates(1.0, expected=100), 3)
        1.005
        """
        return float((noise**-2 - (2 * AdaptiveClip.count_deviation(noise, expected)) ** -2) ** -0.5)

    def after(self, clip: float, norms: Vector, noise_on_count: float, expected: float) -> float:
        """C of the next round; the denominator is the expected number of clients, whoever came."""
        share = 0.5 + (float(((norms <= clip) - 0.5).sum()) + noise_on_count) / expected
        return clip * math.exp(-self.rate * (share - self.quantile))
