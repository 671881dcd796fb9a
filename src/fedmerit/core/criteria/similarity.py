"""Similarity filter: exclude clients whose updates, over the rounds, form a block that differs from the others.

One round says little: among ten clients of a round attackers may be the majority, and honest clients with other rows
differ too. Here the cosines of every pair of clients are averaged over the rounds in which both took part, once over
all of them and once so that the last ones count most, and all clients that came so far are split into two blocks.
Honest clients differ by degree, and no two blocks explain much.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import NormInlier, copies
from fedmerit.core.parts import PAIRS, part
from fedmerit.core.stages.stages import Measured, Phase, UpdateNorms, exclude
from fedmerit.core.state import History, PairDistances, View, cosine_distances
from fedmerit.core.types import EMPTY, Cohort, Family, Matrix, Vector

MIN_CLIENTS = 6
"""Clients that must have come before blocks are compared: among fewer, two explain much by chance.

This and the thresholds below were chosen on digits with seeds from 101 on, and are reported on other seeds and tasks.
"""
OPPOSED, OPPOSED_COSINE = 0.9, 0.1
"""Blocks are opposed where their cosine is below minus this part of the cosine within them, and below minus this."""
SEEN, CLOSER = 0.35, 1.5
"""Thresholds of a coalition: variance explained, ratio of the blocks' cosines."""
SHARP, BEYOND, CERTAIN = 0.5, 0.2, 0.97
"""The smaller block is of another kind where so much is explained; more where the others are alike."""
SWEEPS = 20
VERDICTS = "verdicts"
"""State: why a client was excluded when it answered last, by client."""
BY_NORM = Reputation(NormInlier())
MIN_NORM_REPUTATION = 0.5
"""Clients with at most this reputation are excluded: honest clients have outlying norms at times, not mostly."""
OUTLIER = "its updates were copies, zeros, or had outlying norms in half of its rounds"


@dataclass(frozen=True, slots=True)
class Split:
    """Two blocks of clients: who is in the second, cosines within each and between them, and the share explained.

    `explained` is the part of the variance of all pairs' cosines that the three means explain, 0..1.
    """

    second: NDArray[np.bool_]
    within: tuple[float, float]
    between: float
    explained: float

    @property
    def opposed(self) -> tuple[NDArray[np.bool_], str] | None:
        """The smaller block, and why, where it goes against the other; None where it does not, or both are alike large.

        A client alone is held against the cosine within the other block: it has none of its own.
        """
        within = [mean for mean, size in zip(self.within, self._sizes, strict=True) if size > 1] or [0.0]
        usual = float(np.sqrt(max(within[0], 0.0) * max(within[-1], 0.0)))
        if self._smaller is None or self.between > -max(OPPOSED * usual, OPPOSED_COSINE):
            return None
        return self._smaller, "go against those of the others"

    @property
    def apart(self) -> tuple[NDArray[np.bool_], str] | None:
        """The excluded block and the reason; None if honest clients may differ as much."""
        if self.opposed is not None:
            return self.opposed
        if self._smaller is None:  # the majority is the measure of what honest clients do
            return None
        smaller, larger = self.within if self._sizes[0] < self._sizes[1] else self.within[::-1]
        alike = smaller >= CLOSER * max(larger, 0.0) and self.between < smaller / 2
        if self.explained >= SEEN and alike and smaller > larger:
            return self._smaller, "are closer to each other than those of the others"
        if self.explained >= max(SHARP, min(CERTAIN, larger + BEYOND)):
            return self._smaller, "are of another kind than those of the others"
        return None

    @property
    def _sizes(self) -> tuple[int, int]:
        return int((~self.second).sum()), int(self.second.sum())

    @property
    def _smaller(self) -> NDArray[np.bool_] | None:
        """The block with fewer clients."""
        first, second = self._sizes
        return None if first == second else self.second if second < first else ~self.second


def split(cosines: Matrix, met: NDArray[np.bool_]) -> Split | None:
    """The two blocks that explain the most; cosines count where two clients have met. None where there are not two.

    Starts from the leading eigenvectors, then everybody goes to the block with which it has the larger mean cosine.

    >>> cosines = np.array([[1, 0.9, -1, -0.8], [0.9, 1, -0.8, -1], [-1, -0.8, 1, 0.9], [-0.8, -1, 0.9, 1]])
    >>> split(cosines, ~np.eye(4, dtype=bool)).between
    -0.9
    """
    number, known = len(cosines), np.where(met, cosines, 0.0)
    pairs = int(met.sum())
    if number < 4 or not pairs:
        return None
    mean = float(known.sum()) / pairs
    spread = float(np.where(met, np.square(cosines - mean), 0.0).sum()) / pairs
    best: Split | None = None
    for matrix in (known, np.where(met, cosines - mean, 0.0)):
        vectors = scipy.linalg.eigh(matrix, subset_by_index=[number - 2, number - 1])[1]
        for vector in (*vectors.T, *-vectors.T):  # either sign is an eigenvector, and halves of odd numbers differ
            found = _settled(known, met, _start(vector), mean, spread)
            if found is not None and (best is None or found.explained > best.explained):
                best = found
    return best


def _start(vector: Vector) -> NDArray[np.bool_]:
    positive = vector > 0
    few = min(int(positive.sum()), int((~positive).sum())) < 2
    return np.asarray(vector > np.median(vector) if few else positive)


def _settled(
    known: Matrix, met: NDArray[np.bool_], second: NDArray[np.bool_], mean: float, spread: float
) -> Split | None:
    for _ in range(SWEEPS):
        affinities = [_ratio(known[:, block].sum(axis=1), met[:, block].sum(axis=1)) for block in (~second, second)]
        moved = affinities[1] > affinities[0]
        if moved.all() or not moved.any() or (moved == second).all():
            break
        second = moved
    blocks = (~second, second)
    if not (blocks[0].any() and blocks[1].any()):
        return None
    sums = np.array([[known[np.ix_(one, other)].sum() for other in blocks] for one in blocks])
    counts = np.array([[met[np.ix_(one, other)].sum() for other in blocks] for one in blocks])
    means = np.divide(sums, counts, out=np.zeros((2, 2)), where=counts > 0)
    gained = float((counts * np.square(means - mean)).sum() / counts.sum())
    within = float(means[0, 0]), float(means[1, 1])
    return Split(second, within, float(means[0, 1]), gained / spread if spread > 0 else 0.0)


def _ratio(sums: Vector, counts: Vector) -> Vector:
    """Mean cosines; -1 with a block that nobody was met of."""
    return np.asarray(np.divide(sums, counts, out=np.full(len(sums), -1.0), where=counts > 0))


@part("criterion", "SimilarityFilter")
class SimilarityFilter:
    """0 for clients that are excluded as outliers, 1 for all others; k clients with the same update get 1 / k each.

    A client is excluded where its reputation for inlying norms is at most one half (its updates are copies, or have
    outlying norms, in half of its rounds); or where it is in a block of fewer than half of the clients so far that
    opposes the others (sign flips), is far closer to each other than they are (a backdoor, after FoolsGold), or is
    sharply different (flipped labels). Blocks are split by the mean cosines of all pairs in two windows: over all
    rounds, and over the last ones, in which a cosine counts half as much after each further round of the pair. The
    first sees weak attackers, the second those that begin late. Among fewer than 6 clients only opposed blocks are
    excluded. A remembered client keeps the verdict on its answer. Where nobody stands out all have 1, and the weights
    are those of the other criteria.

    >>> SimilarityFilter().required_facts
    ()
    """

    name: ClassVar[str] = "SimilarityFilter"
    family: ClassVar[Family] = Family.TRUST
    degree: ClassVar[bool] = True
    required_facts: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[str] = "similarity filter: 0 for clients whose updates, over the rounds, are outliers or a block"
    phase: ClassVar[Phase] = "measure"
    remembers: ClassVar[tuple[str, ...]] = (PAIRS,)

    @property
    def stages(self) -> tuple[Any, ...]:
        """Norms first, then the reputation."""
        return (UpdateNorms(), BY_NORM)

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As it was measured."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The values, the fact `excluded`, and a note for each excluded client."""
        history, pairs = view.history, add_round(view.history.pairs, cohort)
        reputations = dict(zip(cohort.ids, BY_NORM(cohort, history).tolist(), strict=True))
        past = history.recent.get(BY_NORM.name, EMPTY)
        reputations = {client: values[-1] for client, values in past.items()} | reputations
        reasons = {client: OUTLIER for client, value in reputations.items() if value <= MIN_NORM_REPUTATION}
        judged = np.array([client not in reasons for client in pairs.ids], dtype=bool)
        met = (pairs.counts > 0) & ~np.eye(len(pairs.ids), dtype=bool) & np.outer(judged, judged)
        places = np.flatnonzero(met.any(axis=1))
        for recent, window in ((False, "over the rounds"), (True, "in the last rounds")):
            found = split(pairs.cosines(places, recent=recent), met[np.ix_(places, places)])
            apart = found and (found.apart if len(places) >= MIN_CLIENTS else found.opposed)
            if apart:
                block, why = [pairs.ids[place] for place in places[apart[0]]], apart[1]
                text = f"{window} its updates and those of {len(block) - 1} of {len(places)} clients {why}"
                reasons |= {client: text for client in block if client not in reasons}
        verdicts = {int(client): why for client, why in view.own_of(f"stage:{self.name}").get(VERDICTS, EMPTY).items()}
        now = dict(zip(cohort.ids, cohort.answered.tolist(), strict=True))
        kept = {one: (reasons if fresh else verdicts).get(one) for one, fresh in now.items()}
        reasons = {client: why for client, why in kept.items() if why}
        measured = exclude(cohort, self.name, reasons, {VERDICTS: {str(one): why for one, why in reasons.items()}})
        values = measured.facts[self.name] / (1 + copies(cohort))
        return measured._replace(facts={**measured.facts, self.name: values})


def add_round(pairs: PairDistances, cohort: Cohort) -> PairDistances:
    """The pairs with the round of this cohort; only clients that answered in it have met."""
    fresh = cohort.fresh()
    return pairs.after(fresh.ids, cosine_distances(fresh))
