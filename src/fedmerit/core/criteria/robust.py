"""Robust criteria: what an update looks like next to the other clients' updates.

All are degrees in 0..1 that the server computes itself, so no client can claim them. They compare with a median of the
round: fewer than half of the clients cannot move it beyond what the others sent.
"""

from typing import ClassVar

import numpy as np

from fedmerit.core.parts import part
from fedmerit.core.stages.stages import median_norm
from fedmerit.core.state import History
from fedmerit.core.suspects import MAX_NORM_RATIO, MIN_NORM_RATIO
from fedmerit.core.types import Cohort, Family, Matrix, Vector
from fedmerit.core.updates import cosines_of

SAME = 1e-6
"""Directions that are nearer to each other differ by rounding only."""
NEAR_MEDIANS = 0.2
"""Of `NearestDistance`: the distance to the nearest update, in medians of the round, from which on it counts as 1."""


@part("criterion", "NormInlier")
class NormInlier:
    """1 for an update whose norm is 0.1 to 8 times the median norm and that no other client sent too; else 0.

    The median is that of all clients' last norms where a part remembers them, else of the round.
    `Reputation(NormInlier())` says how often a client was an outlier.
    """

    name: ClassVar[str] = "NormInlier"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "norm inlier: 1 for an update of 0.1 to 8 times the median norm that is no copy, else 0"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 or 0."""
        norms, median = cohort.updates.norms, median_norm(cohort, history) or 1.0
        fits = (norms >= MIN_NORM_RATIO * median) & (norms <= MAX_NORM_RATIO * median) & (copies(cohort) == 0)
        return np.asarray(fits.astype(np.float64))


@part("criterion", "NearestDistance")
class NearestDistance:
    """min(1, d_i / (0.2 * D)): d_i the cosine distance to the nearest other update, D the median of all pairs.

    0 for a client and for those that copy its update, and the lower, the less noise a copy has: noise of r times the
    norm gives a distance of 1 - 1 / sqrt(1 + r^2), 0.005 for r = 0.1. One round does not tell the copy from the
    original. `Reputation(NearestDistance())` does if a client copies in every round and its victims change. Not for
    clients with one or two labels each: those with the same labels look like copies. 1 for zeros.

    The factor 0.2 was chosen on seeds 101 and 102: in mini-batch training on M2F's MNIST and on digits (iid,
    Dirichlet) the nearest update was at least 0.14 D away from an honest client, and at most 0.15 D from a copy with
    noise of 0.3.

    >>> from fedmerit.core.updates import Updates
    >>> rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 2]], dtype=np.float32)
    >>> NearestDistance()(Cohort(1, (0, 1, 2, 3), Updates(rows), {}), History()).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """

    name: ClassVar[str] = "NearestDistance"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = ()
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "nearest distance: of the update to the nearest other, at most 1; near 0 for copies"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """0..1."""
        number = len(cohort.ids)
        if number < 2:
            return np.ones(number)
        distances = 1.0 - _cosines_to_others(cohort)
        scale = NEAR_MEDIANS * float(np.median(distances))
        # Where most pairs are equal, similarity is the normal case and says nothing.
        return np.minimum(distances.min(axis=1) / scale, 1.0) if scale > SAME**2 else np.ones(number)


def copies(cohort: Cohort) -> Vector:
    """The number of other clients that sent an update of the same direction; 0 for updates of zeros."""
    if len(cohort.ids) < 2:
        return np.zeros(len(cohort.ids))
    apart = np.sqrt(np.maximum(2 - 2 * _cosines_to_others(cohort), 0.0))
    return np.asarray((apart < SAME).sum(axis=1).astype(np.float64))


def _cosines_to_others(cohort: Cohort) -> Matrix:
    """(n, n - 1): the cosines of each update and the others; 0 where one of them is zero."""
    number = len(cohort.ids)
    return cosines_of(cohort.updates.products)[~np.eye(number, dtype=bool)].reshape(number, number - 1)
