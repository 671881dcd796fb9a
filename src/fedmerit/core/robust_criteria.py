"""Robust criteria: what an update looks like beside the others', or beside the server's own.

All are degrees in 0..1 that the server computes itself, so no client can claim them. Their yardstick is a median of the
round: fewer than half of the clients cannot move it beyond what the others sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmerit.core.aggregators import CoordinateMedian, check_share, krum_scores
from fedmerit.core.facts import ALIGNMENT
from fedmerit.core.types import Cohort, Family, History, Vector


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
        products, number = cohort.updates.products, len(cohort.ids)
        if number < 2:
            return np.ones(number)
        lengths = np.sqrt(np.diag(products))
        scale = np.outer(lengths, lengths)
        cosines = np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0)
        others = cosines[~np.eye(number, dtype=bool)].reshape(number, number - 1)
        return np.asarray(np.clip(np.median(others, axis=1), 0.0, 1.0))


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


def _beside_median(values: Vector) -> Vector:
    """min(1, median / value): 1 up to the median, then less."""
    middle = float(np.median(values))
    return np.asarray(np.divide(middle, values, out=np.ones(len(values)), where=values > middle))
