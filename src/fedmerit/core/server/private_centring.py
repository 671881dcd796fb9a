"""Private centring: the federation's mean input as a bounded sum with noise, told once before the first round.

    mean = (sum_k clip(mean_k, B) + N(0, (z_c B)^2 I)) / K

mean_k is the mean of client k's own inputs: every client counts alike, whatever rows it claims. One client moves the
sum by at most B, so this is a Gaussian mechanism of multiplier z_c over all clients: an event of its own in the
account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmerit.core.server.centring import FeatureSums
from fedmerit.core.stages.clip import Clip
from fedmerit.core.types import ClientId, Vector
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CentreNoise:
    """The noise on the mean input as a multiple of `clip`, the length that a client's own mean is cut to.

    >>> from fedmerit.core.server.centring import feature_sums
    >>> CentreNoise(4.0, clip=5.0).total({0: feature_sums(np.array([[6.0, 8.0], [6.0, 8.0]]))}).tolist()
    [3.0, 4.0]
    """

    noise: float
    clip: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.noise < np.inf:
            raise ConfigError(f"privacy.centre_noise is a multiple of centre_clip, above 0; got {self.noise}")
        if not 0 < self.clip < np.inf:
            raise ConfigError(
                f"privacy.centre_clip is the most that a client's mean input may be long; got {self.clip}"
            )

    def total(self, sums: Mapping[ClientId, FeatureSums]) -> Vector:
        """The sum of the clients' own means, each cut to the clip, in client order."""
        means = np.stack([sums[client].sums / sums[client].rows for client in sorted(sums)])
        return np.asarray(Clip(self.clip)(np.linalg.norm(means, axis=1)) @ means)
