"""Private search: what clients think of the steps that a server could take, as one bounded sum with noise.

    gains = (sum_{k in S} clip(gains_k, G) + N(0, (z_g G)^2 I)) / (q K)

gains_k has an entry for each candidate: by how much client k, of the round's own sample, prefers it to the model before
the round. One client moves the sum by at most G. The candidates go by the noisy aggregate alone, so this is a second
Gaussian mechanism on the same sample, and both together have the multiplier z where 1 / z^2 is shared between them:

    z_g = z / sqrt(share),    and z / sqrt(1 - share) is left for the updates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.stages.clip import Clip
from fedmerit.core.types import Evaluation, Matrix, Vector
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SearchNoise:
    """The part of 1 / z^2 that a search's answers take, and the length that a client's gains are cut to.

    >>> noise = SearchNoise(share=0.25)
    >>> noise.on_gains(1.0), round(noise.on_updates(1.0), 3)
    (2.0, 1.155)
    """

    share: float = 0.1
    clip: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise ConfigError(f"privacy.search_share is a part of the budget, above 0 and up to 0.5; got {self.share}")
        if not 0 < self.clip < np.inf:
            raise ConfigError(f"privacy.search_clip is the most that a client's gains may be long; got {self.clip}")

    def on_gains(self, noise: float) -> float:
        """z_g, as a multiple of the clip of the gains."""
        return float(noise / np.sqrt(self.share))

    def on_updates(self, noise: float) -> float:
        """What is left for the updates, as a multiple of theirs."""
        return float(noise / np.sqrt(1 - self.share))

    def total(self, gains: Matrix) -> Vector:
        """The sum of the clients' gains, each cut to the clip: (clients, candidates) -> (candidates,).

        >>> SearchNoise(clip=1.0).total(np.array([[3.0, 4.0], [0.1, -0.1]])).round(1).tolist()
        [0.7, 0.7]
        """
        return np.asarray(Clip(self.clip)(np.linalg.norm(gains, axis=1)) @ gains)


def client_gains(search: BoldestFirst, before: Evaluation, candidates: Sequence[Evaluation]) -> Matrix:
    """By how much each client prefers each candidate: (clients, candidates); 0 for one that did not answer in full."""
    sizes = np.maximum(before.sizes, 1)
    columns = [_mean(search, before, sizes) - _mean(search, one, sizes) for one in candidates]
    gains = np.column_stack(columns)
    whole = (before.sizes > 0) & np.logical_and.reduce([one.sizes == before.sizes for one in candidates])
    return np.where((whole & np.isfinite(gains).all(axis=1))[:, None], gains, 0.0)


def _mean(search: BoldestFirst, answers: Evaluation, sizes: Vector) -> Vector:
    """Each client's mean loss, or its share of wrong answers."""
    if search.by == "loss" and answers.losses is not None:
        return answers.losses / sizes
    return -answers.correct / sizes
