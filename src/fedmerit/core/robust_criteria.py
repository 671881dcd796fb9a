"""Robust criteria: what an update looks like beside the others', or beside the server's own.

All are degrees in 0..1 that the server computes itself, so no client can claim them. Their yardstick is a median of the
round: fewer than half of the clients cannot move it beyond what the others sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmerit.core.aggregators import CoordinateMedian, check_share, krum_scores
from fedmerit.core.facts import ALIGNMENT
from fedmerit.core.types import Cohort, Family, History, Matrix, Vector

SAME = 1e-6
"""Directions that are nearer to each other differ by rounding alone."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """max(0, cos(update_k, update of the server)), the server's own trained on its rows from the same model [FLTrust].

    FLTrust also gives each update the length of the server's; `Clip` bounds lengths here.

    >>> Alignment().required_facts
    ('alignment',)
    """

    name: str = "Alignment"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = (ALIGNMENT,)
    degree: bool = True
    about: str = "alignment: cosine of the update and the server's own on its rows, 0 where it is negative (FLTrust)"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As the server measured it."""
        return cohort.facts[ALIGNMENT]


@dataclass(frozen=True, slots=True)
class Nearness:
    """min(1, median of s / s_k), s_k the mean squared distance of update k to the nearest others [Krum].

    These are the others that with the client are 1 - `share` of the cohort: n - f - 1 of them for share = f / n.
    """

    share: float = 0.4
    name: str = "Nearness"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "nearness: median / own mean squared distance to the nearest other updates, at most 1 (Krum)"

    def __post_init__(self) -> None:
        check_share(self.share)

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for all that are as near to others as the median, less for those that stand apart."""
        number = len(cohort.ids)
        return _beside_median(krum_scores(cohort.updates.squared_distances, np.full(number, 1 / number), self.share))


@dataclass(frozen=True, slots=True)
class Typical:
    """min(1, median of d / d_k), d_k = ||update_k - coordinate-wise median of all updates||_2 [Yin 2018]."""

    name: str = "Typical"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "typicality: median / own distance to the coordinate-wise median of the updates, at most 1"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for the half that is nearest to the median."""
        updates = cohort.updates

        def distances() -> Vector:
            return updates.distances(CoordinateMedian()(updates, np.full(len(updates), 1 / len(updates))))

        return _beside_median(updates.once("to_median", distances))


@dataclass(frozen=True, slots=True)
class Agreement:
    """max(0, median over the others j of cos(update_k, update_j)): half of the others agree at least that much.

    Attackers that are fewer than half find no majority for each other, however alike they are. 1 for a client alone.
    """

    name: str = "Agreement"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "agreement: median cosine of the update and the other updates, 0 where it is negative"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """By directions alone: lengths do not count."""
        if len(cohort.ids) < 2:
            return np.ones(len(cohort.ids))
        return np.asarray(np.clip(np.median(_cosines_to_others(cohort), axis=1), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Distinct:
    """min(1, d_k / median of d), d_k the distance of the update's direction to that of the nearest other update.

    Clients that learn from rows of their own differ. Copies have 0, as have updates of zeros; attackers that want the
    same are nearer to each other than honest clients are [FoolsGold]. 1 for all where half of them are copies.
    """

    name: str = "Distinct"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "distinctness: own distance to the nearest other update, by direction / its median, at most 1"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for the half that stands most alone."""
        if len(cohort.ids) < 2:
            return np.ones(len(cohort.ids))
        nearest = np.sqrt(np.maximum(2 - 2 * _cosines_to_others(cohort).max(axis=1), 0.0))
        nearest[nearest < SAME] = 0.0
        nearest[cohort.updates.norms == 0] = 0.0
        return _of_median(nearest)


@dataclass(frozen=True, slots=True)
class NormShare:
    """min(l_k / M, M / l_k), l_k = ||update_k||_2 and M the median of those that are not 0.

    An update ten times too long has 0.1, as one ten times too short; one that is zero has 0.
    """

    name: str = "NormShare"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "usual length: of the update / median length, or the inverse where it is longer; a zero update has 0"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for the median length."""
        norms = cohort.updates.norms
        moved = norms > 0
        usual = np.median(norms[moved]) if moved.any() else 1.0
        return np.asarray(np.minimum(norms, usual) / np.maximum(norms, usual))


@dataclass(frozen=True, slots=True)
class Conduct:
    """min(1, a_k / median of a) * Distinct_k ** 3 * NormShare_k * Typical_k, a the `Agreement`.

    How far an update is one among the others: it agrees with them as much as most do, is nobody's copy, and is neither
    longer nor farther from the middle than usual. One round says little of a client whose rows are unlike the others';
    `Reputation(Conduct())` says more.
    """

    name: str = "Conduct"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "conduct: agreement / its median, times distinctness cubed, usual length and typicality"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 for an update that stands out in nothing."""
        agreement = _of_median(Agreement()(cohort, history))
        alone = Distinct()(cohort, history) ** 3
        return np.asarray(agreement * alone * NormShare()(cohort, history) * Typical()(cohort, history))


def _cosines_to_others(cohort: Cohort) -> Matrix:
    """(n, n - 1): the cosines of each update and the others; 0 where one of them is zero."""
    products, number = cohort.updates.products, len(cohort.ids)
    lengths = np.sqrt(np.diag(products))
    scale = np.outer(lengths, lengths)
    cosines = np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.asarray(cosines[~np.eye(number, dtype=bool)].reshape(number, number - 1))


def _of_median(values: Vector) -> Vector:
    """min(1, value / median): 1 from the median on; for all where it is 0."""
    middle = float(np.median(values))
    return np.asarray(np.divide(values, middle, out=np.ones(len(values)), where=values < middle))


def _beside_median(values: Vector) -> Vector:
    """min(1, median / value): 1 up to the median, then less."""
    middle = float(np.median(values))
    return np.asarray(np.divide(middle, values, out=np.ones(len(values)), where=values > middle))
