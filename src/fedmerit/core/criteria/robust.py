"""Robust criteria: what an update looks like beside the others', or beside the server's own.

All are degrees in 0..1 that the server computes itself, so no client can claim them. Their yardstick is a median of the
round: fewer than half of the clients cannot move it beyond what the others sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.criteria.reputation import REPUTATION
from fedmerit.core.facts import ALIGNMENT
from fedmerit.core.server.aggregators import CoordinateMedian, check_share, krum_scores
from fedmerit.core.stages.norms import usual_length
from fedmerit.core.types import NOTHING, Cohort, Family, History, Matrix, Vector
from fedmerit.core.updates import cosines_of

SHORTEST, LONGEST = 0.1, 8.0
"""Updates of usual length have so many times the median length: clients of one label have very short ones."""
SAME = 1e-6
"""Directions that are nearer to each other differ by rounding alone."""
LEFT_ALONE, FEW, TOGETHER, DOUBTED = 0.03, 0.7, 0.02, 0.7
"""What a client leaves alone, which share of the clients are few, what two share, and a bad name; see `Common`.

Chosen on seeds 101 to 103: honest clients of digits, Adult, FEMNIST and MNIST were above 0.02 in under 1 % of cases.
"""


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
            return updates.distances(CoordinateMedian()(updates, np.ones(len(updates))))

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
class Usual:
    """1 for an update of 0.1 to 8 times the usual length that is nobody's copy; else 0.

    The usual length is the median of all clients' last ones, where the recipe remembers them; else of the round's.
    Honest clients are seldom out of it (docs/suspects.md); `Reputation(Usual())` says how often a client was.
    """

    name: str = "Usual"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "usual: 1 for an update of 0.1 to 8 times the usual length that is no copy of another, else 0"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 or 0."""
        norms = cohort.updates.norms
        usual = usual_length(cohort, history) or 1.0
        fits = (norms >= SHORTEST * usual) & (norms <= LONGEST * usual) & (copies(cohort) == 0)
        return np.asarray(fits.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Common:
    """0 for clients that share with another what most leave alone; else 1. A backdoor's trigger is such a thing.

    A client leaves a coordinate c alone where |u_c| <= 0.03 ||u|| / sqrt(d); R are the coordinates that at most 70 % of
    the clients move. <u_i, u_j>_R / (||u_i|| ||u_j||), the product over R alone, is how much two updates share there,
    and a client has 0 where that is above 0.02 with one other. Honest clients with rare rows move rare coordinates
    too, but each its own. Who moves less than half as many coordinates as the median client has no say in what most
    move, nor has who got a bad name by it (`Reputation(Common())`). Where more than half of the others would have 0,
    they are the usual case, and have 1.

    >>> from fedmerit.core.updates import Updates
    >>> rows = np.eye(6, 8, dtype=np.float32) / 4 + np.array([1, 1, 1, 1, 1, 1, 0, 0], dtype=np.float32)
    >>> rows[:2, 6:] = 1  # two of six clients learn a trigger
    >>> Common()(Cohort(1, tuple(range(6)), Updates(rows), {}), History()).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    """

    name: str = "Common"
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = ()
    degree: bool = True
    about: str = "common: 0 for updates that move, together with another, what most updates leave alone, else 1"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """1 or 0."""
        if not cohort.ids:
            return np.ones(0)
        past = history.recent.get(f"{REPUTATION}{self.name}", NOTHING)
        trusted = np.array([past.get(client, (1.0,))[-1] > DOUBTED for client in cohort.ids])
        rare = _rare_parts(cohort, trusted) > TOGETHER
        many = 2 * (rare & trusted).sum() > trusted.sum()
        return np.asarray((~rare | (trusted & many)).astype(np.float64))


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


def _rare_parts(cohort: Cohort, trusted: NDArray[np.bool_]) -> Vector:
    """The largest part that each update has in common with another in coordinates that few move, see `Common`."""
    updates, norms, number = cohort.updates, cohort.updates.norms, len(cohort.ids)
    voices = trusted & (norms > 0)
    if voices.sum() < 3:
        return np.zeros(number)
    least = (LEFT_ALONE * norms / np.sqrt(updates.length)).astype(np.float32)[:, np.newaxis]
    moved = updates.row_sums(lambda block: np.abs(block) > least)
    voices &= moved >= np.median(moved[voices]) / 2
    most = FEW * voices.sum()
    found = updates.shared(lambda block: (np.abs(block[voices]) > least[voices]).sum(axis=0) <= most)
    scale = np.outer(norms, norms)
    parts = np.divide(found, scale, out=np.zeros_like(found), where=scale > 0)
    np.fill_diagonal(parts, 0.0)
    return np.asarray(parts.max(axis=1))


def copies(cohort: Cohort) -> Vector:
    """How many others sent an update of the same direction; 0 for updates of zeros."""
    if len(cohort.ids) < 2:
        return np.zeros(len(cohort.ids))
    apart = np.sqrt(np.maximum(2 - 2 * _cosines_to_others(cohort), 0.0))
    return np.asarray((apart < SAME).sum(axis=1).astype(np.float64))


def _cosines_to_others(cohort: Cohort) -> Matrix:
    """(n, n - 1): the cosines of each update and the others; 0 where one of them is zero."""
    number = len(cohort.ids)
    return cosines_of(cohort.updates.products)[~np.eye(number, dtype=bool)].reshape(number, number - 1)


def _of_median(values: Vector) -> Vector:
    """min(1, value / median): 1 from the median on; for all where it is 0."""
    middle = float(np.median(values))
    return np.asarray(np.divide(values, middle, out=np.ones(len(values)), where=values < middle))


def _beside_median(values: Vector) -> Vector:
    """min(1, median / value): 1 up to the median, then less."""
    middle = float(np.median(values))
    return np.asarray(np.divide(middle, values, out=np.ones(len(values)), where=values > middle))
