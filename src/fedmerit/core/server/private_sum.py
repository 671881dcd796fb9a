"""Private sum: the aggregate of a round as a bounded sum with Gaussian noise.

    (sum_k s_k / s_max * clip(update_k, C) + N(0, (z C)^2 I)) * max_weight / (q K)

s_k is the client's score, s_max the largest score of its operator, q K the expected number of clients in a round: only
the sum depends on the clients that take part. So one client more or less changes the sum by at most C, whatever it
claims or sends, exactly as in the unweighted mean: earned weights cost signal, not privacy. docs/privacy.md has the
proof. The noise of a real run comes from the operating system's generator.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import scipy
from annotated_types import Interval

from fedmerit.core.collect.collect import Selection
from fedmerit.core.host import Release
from fedmerit.core.parts import ACCOUNTED, PURE, Doc, Words, part
from fedmerit.core.seeds import generator
from fedmerit.core.server.server import Batch, Kept
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.types import EMPTY, Matrix, Model, Note, Rows, Vector
from fedmerit.core.weights.scores import Score
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.search.search import Candidate

VOID = "the noise comes from the run's seed (privacy.reproducible): the guarantee is void"


@part("aggregator", "private-sum")
class PrivateSum:
    """Client-level differential privacy of the model by noise at the server.

    It also runs in a round without clients, because no noise would reveal that nobody took part. One release is
    recorded for each attempt of a round, before any noise is drawn.

    noise          z: the noise on the sum has standard deviation z * clip
    fraction       q: probability that a client takes part in a round
    clip           C: largest norm of an update
    max_weight     a client gets at most this many times the expected equal share
    delta          epsilon is reported at this delta; at most 1 / clients
    reproducible   draw the noise from the run's seed, for tests: no guarantee

    >>> round(PrivateSum(noise=1.1, fraction=0.1, clip=1.0).deviation(clients=1000), 6)
    0.011
    """

    noise: Annotated[float, Interval(gt=0), Doc("z: noise on the sum has the standard deviation z * clip")]
    fraction: Annotated[float, Interval(gt=0, le=1), Doc("q: probability that a client takes part (Poisson)")]
    clip: Annotated[float, Interval(gt=0), Doc("C: the largest norm of an update")] = 1.0
    max_weight: Annotated[
        float, Interval(gt=0), Doc("a client gets at most this many times the expected equal share")
    ] = 1.0
    delta: Annotated[float, Interval(gt=0, lt=1), Doc("epsilon is stated at this delta; at most 1 / clients")] = 1e-5
    reproducible: Annotated[bool, Doc("noise from the run's seed, for tests: no privacy guarantee")] = False

    runs_empty: ClassVar[bool] = True
    needs: ClassVar[Words] = frozenset({"answers in their round"})
    gives: ClassVar[Words] = PURE
    demands: ClassVar[Words] = ACCOUNTED
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "[privacy] accounts for one noisy sum; use DS, LD, LC, CB, IS, MW, Participation, "
        "attribute:NAME, fact:NAME or validated:OBJECTIVE, with prioritized, product or another score of one client",
    }

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Return the noisy sum of the round, which is noise only if nobody took part. All candidates share it."""
        view = batch.view
        assert view is not None  # a round has one
        # Recorded first: a crash after this line costs an unused release, never an unrecorded one.
        view.host.book(Release(view.index, self.noise, self.fraction))
        clients, length = len(view.host.names), len(view.model)
        total = self.noise * self.clip * self._normals(length, batch.seed, view.index)
        if batch.summed is not None:
            total += batch.summed.total
        elif len(batch.updates):
            factors = self.factors(batch.candidates[0]) * clip_factors(batch.updates.norms, self.clip)
            total += batch.updates.combine(factors)
        noisy = (total * self.factor(clients)).astype(np.float32)
        return noisy if weights.ndim == 1 else np.broadcast_to(noisy, (len(weights), len(noisy)))

    @property
    def max_norm(self) -> float:
        """The clip."""
        return self.clip

    def factors(self, candidate: Candidate) -> Vector:
        """Return each client's score as a share of the largest possible one."""
        if candidate.weights is None:
            return np.zeros(0)
        weighting = candidate.weighting
        return shares_of_the_sum(weighting.score, candidate.weights.scores, len(weighting.priority))

    def after(self, batch: Batch, aggregate: Model) -> Kept:
        """Return a note on the number of clipped updates."""
        norms, notes = batch.updates.norms, list[Note]()
        cut = int((norms > self.clip).sum())
        if cut:
            text = f"{cut} of {len(norms)} updates were clipped to a norm of {self.clip:.4g}; their median norm is "
            notes.append(Note("clipped", "updates", f"{text}{np.median(norms):.3g}"))
        if self.reproducible:
            notes.append(Note("privacy-void", "noise", VOID))
        return Kept(EMPTY, tuple(notes), {"clip": self.clip})

    def factor(self, clients: int) -> float:
        """max_weight / (q K): the factor of the sum."""
        return self.max_weight / (self.fraction * clients)

    def deviation(self, clients: int) -> float:
        """Standard deviation of the noise in each entry of the aggregate."""
        return self.noise * self.clip * self.factor(clients)

    def _normals(self, length: int, seed: int, index: int) -> Vector:
        """Draw from the operating system, or from the seed if reproducible."""
        if self.reproducible:
            return generator(seed, "privacy", index).normal(0.0, 1.0, length)
        return secret_normals(length)


def secret_normals(length: int) -> Vector:
    """Draw standard normal numbers from os.urandom: 52 random bits each, through the inverse distribution function."""
    # 52 bits plus a half stay inside (0, 1) as float64, so that ndtri never returns infinity.
    bits = np.frombuffer(os.urandom(8 * length), np.uint64) >> np.uint64(12)
    return np.asarray(scipy.special.ndtri((bits + 0.5) / 2.0**52))


def shares_of_the_sum(score: Score, scores: Vector, criteria: int) -> Vector:
    """min(s_k / s_max, 1), s_max the score of a client with 1 in every criterion.

    >>> from fedmerit.core.weights.scores import Prioritized
    >>> shares_of_the_sum(Prioritized(), np.array([0.5, 2.0]), criteria=2).tolist()
    [0.25, 1.0]
    """
    largest = float(score(np.ones((1, criteria)))[0])
    return np.minimum(scores / largest, 1.0) if largest > 0 else np.zeros(len(scores))


def check_selection(privacy: PrivateSum, selection: Selection, clients: int) -> None:
    """Check that the account matches the selection, and that delta is meaningful for this many clients."""
    from fedmerit.core.collect.collect import Poisson

    if not isinstance(selection, Poisson):
        raise ConfigError(
            f"[privacy] accounts for clients that take part independently (got {selection!r}); set "
            'run.selection = "poisson"'
        )
    if selection.fraction != privacy.fraction:
        raise ConfigError(
            f"the account is for a fraction of {privacy.fraction:g}, and {selection.fraction:g} of the clients are "
            "drawn; set both to the same value"
        )
    if privacy.delta > 1 / clients:
        raise ConfigError(
            f"privacy.delta must be at most 1 / clients = {1 / clients:.3g} (got {privacy.delta:g}), or a mechanism "
            f"that publishes all data of one client would pass; set privacy.delta = {0.1 / clients:.1g} or less"
        )
