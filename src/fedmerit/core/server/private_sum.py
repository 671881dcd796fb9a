"""Private sum: the aggregate of a round as a bounded sum with Gaussian noise.

    (sum_k s_k / s_max * clip(update_k, C) + N(0, (z C)^2 I)) * max_weight / (q K)

s_k is the client's score, s_max the largest score of its operator, q K the expected number of clients in a round: only
the sum depends on the clients that take part. So one client more or less changes the sum by at most C, whatever it
claims or sends, exactly as in the unweighted mean: earned weights cost signal, not privacy. docs/privacy.md has the
proof. The noise of a real run comes from the operating system's generator.

Adaptive clip (Andrew et al. 2021):

    share = 1/2 + (sum_k (b_k - 1/2) + N(0, s^2)) / (q K),    b_k = 1 where |update_k| <= C, else 0
    C     = C * exp(-rate * (share - quantile))

A client moves the sum of b_k - 1/2 by at most 1/2. Together with the sum of the updates, noised by z' C, that is one
Gaussian mechanism whose multiplier z has 1 / z^2 = 1 / z'^2 + 1 / (2 s)^2, so z' = (z^-2 - (2 s)^-2)^(-1/2).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
import scipy
from annotated_types import Interval

from fedmerit.core.collect.collect import Selection
from fedmerit.core.host import Release
from fedmerit.core.parts import ACCOUNTED, Doc, Words, check_settings, part
from fedmerit.core.seeds import generator
from fedmerit.core.server.server import Batch, Kept
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.types import Matrix, Model, Note, Rows, Vector
from fedmerit.core.weights.scores import Score
from fedmerit.errors import ConfigError

Accountant: TypeAlias = Literal["rdp", "pld"]
VOID = "the noise comes from the run's seed (privacy.reproducible): the guarantee is void"
OF_EXPECTED = 20
"""The noise on the count of short updates is 1 / this of the expected number of clients, as in the paper."""


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """Adaptive clip norm: C moves towards the `quantile` of the update norms, by `rate`, from `start`.

    >>> clip = AdaptiveClip(start=1.0)
    >>> clip.after(1.0, np.array([0.5, 0.6, 0.7, 3.0]), noise_on_count=0.0, expected=4)  # three of four fit: C falls
    0.951229424500714
    """

    start: Annotated[float, Interval(gt=0), Doc("the first clip norm")] = 0.1
    quantile: Annotated[float, Interval(gt=0, lt=1), Doc("the share of the updates that is not clipped")] = 0.5
    rate: Annotated[float, Interval(gt=0), Doc("how fast the clip moves")] = 0.2

    def __post_init__(self) -> None:
        check_settings(self)

    @staticmethod
    def count_deviation(noise: float, expected: float) -> float:
        """s: a twentieth of the expected clients, but at least z, so that z' exists.

        >>> AdaptiveClip.count_deviation(1.0, expected=100), AdaptiveClip.count_deviation(1.0, expected=8)
        (5.0, 1.0)
        """
        return max(expected / OF_EXPECTED, noise)

    @staticmethod
    def noise_on_updates(noise: float, expected: float) -> float:
        """z': together with the noise on the count, a round costs as much as z on the sum only.

        >>> round(AdaptiveClip.noise_on_updates(1.0, expected=100), 3)
        1.005
        """
        return float((noise**-2 - (2 * AdaptiveClip.count_deviation(noise, expected)) ** -2) ** -0.5)

    def after(self, clip: float, norms: Vector, noise_on_count: float, expected: float) -> float:
        """C of the next round; the denominator is the expected number of clients, not the number that answered."""
        share = 0.5 + (float(((norms <= clip) - 0.5).sum()) + noise_on_count) / expected
        return clip * math.exp(-self.rate * (share - self.quantile))


@part("aggregator", "private-sum")
class PrivateSum:
    """Client-level differential privacy of the model by noise at the server.

    It also runs in a round without clients, because no noise would reveal that nobody took part. One release is
    recorded for each attempt of a round, before any noise is drawn: sum and quantile share the multiplier `noise`.

    noise          z: the noise on the sum has standard deviation z * clip
    fraction       q: probability that a client takes part in a round
    clip           C: largest norm of an update, or an `AdaptiveClip`
    max_weight     a client gets at most this many times the expected equal share
    delta          epsilon is reported at this delta; at most 1 / clients
    accountant     `rdp`, or `pld`, which is tighter and slower
    reproducible   draw the noise from the run's seed, for tests: no guarantee

    >>> round(PrivateSum(noise=1.1, fraction=0.1, clip=1.0).deviation(clients=1000), 6)
    0.011
    """

    noise: Annotated[float, Interval(gt=0), Doc("z: noise on the sum has the standard deviation z * clip")]
    fraction: Annotated[float, Interval(gt=0, le=1), Doc("q: probability that a client takes part (Poisson)")]
    clip: Annotated[float | AdaptiveClip, Interval(gt=0), Doc("C: the largest norm of an update, or how it adapts")] = (
        1.0
    )
    max_weight: Annotated[
        float, Interval(gt=0), Doc("a client gets at most this many times the expected equal share")
    ] = 1.0
    delta: Annotated[float, Interval(gt=0, lt=1), Doc("epsilon is stated at this delta; at most 1 / clients")] = 1e-5
    accountant: Annotated[Accountant, Doc("`rdp`, or `pld`, which is tighter and slower")] = "rdp"
    reproducible: Annotated[bool, Doc("noise from the run's seed, for tests: no privacy guarantee")] = False

    runs_empty: ClassVar[bool] = True
    needs: ClassVar[Words] = frozenset({"answers in their round"})
    gives: ClassVar[Words] = ACCOUNTED
    demands: ClassVar[Words] = ACCOUNTED
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "[privacy] accounts for one noisy sum; use DS, LD, LC, CB, IS, MW, Participation, LossPower, "
        "attribute:NAME, fact:NAME or validated:OBJECTIVE, with prioritized, product or another score of one client",
    }

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Return the noisy sum of the round, which is noise only if nobody took part. All candidates share it."""
        view = batch.view
        assert view is not None  # a round has one
        # Recorded first: a crash after this line costs an unused release, never an unrecorded one.
        view.host.book(Release(view.index, self.noise, self.fraction))
        clients, length = len(view.host.names), view.host.trainable or len(view.model)
        clip = self.clip_in(batch)
        total = self.sum_noise(clients) * clip * self._normals(length, batch.seed, "privacy", view.index)
        earned = batch.candidates[0].weights if batch.candidates else None
        if earned is not None and len(batch.updates):
            weighting = batch.candidates[0].weighting
            shares = shares_of_the_sum(weighting.score, earned.scores, len(weighting.priority))
            total += batch.updates.combine(shares * clip_factors(batch.updates.norms, clip))[:length]
        noisy = np.zeros(len(view.model), np.float32)
        noisy[:length] = total * self.factor(clients)
        return noisy if weights.ndim == 1 else np.broadcast_to(noisy, (len(weights), len(noisy)))

    def after(self, batch: Batch, aggregate: Model) -> Kept:
        """Return the clip of the next round if it adapts, and a note on the number of clipped updates."""
        assert batch.view is not None  # a round has one
        norms, clip, notes = batch.updates.norms, self.clip_in(batch), list[Note]()
        cut = int((norms > clip).sum())
        if cut:
            text = f"{cut} of {len(norms)} updates were clipped to a norm of {clip:.4g}; their median norm is "
            notes.append(Note("clipped", "updates", f"{text}{np.median(norms):.3g}"))
        if self.reproducible:
            notes.append(Note("privacy-void", "noise", VOID))
        own = {}
        if isinstance(self.clip, AdaptiveClip):
            expected, index = self.fraction * len(batch.view.host.names), batch.view.index
            draw = float(self._normals(1, batch.seed, "privacy quantile", index)[0])
            noise = draw * self.clip.count_deviation(self.noise, expected)
            # float32, as checkpoints store it: a resumed run continues with the same bits
            own = {"clip": float(np.float32(self.clip.after(clip, norms, noise, expected)))}
        return Kept(own, tuple(notes), {"clip": clip})

    def clip_in(self, batch: Batch) -> float:
        """C of the round."""
        if not isinstance(self.clip, AdaptiveClip):
            return self.clip
        return float(batch.own.get("clip", self.first_clip))

    def factor(self, clients: int) -> float:
        """max_weight / (q K): the factor of the sum."""
        return self.max_weight / (self.fraction * clients)

    def deviation(self, clients: int) -> float:
        """Standard deviation of the noise in each entry of the aggregate; of the first round if C adapts."""
        return self.sum_noise(clients) * self.first_clip * self.factor(clients)

    @property
    def first_clip(self) -> float:
        """C of the first round."""
        return self.clip.start if isinstance(self.clip, AdaptiveClip) else self.clip

    def sum_noise(self, clients: int) -> float:
        """Multiple of C that is the noise on the sum: z, or z' with a noisy quantile."""
        if not isinstance(self.clip, AdaptiveClip):
            return self.noise
        return self.clip.noise_on_updates(self.noise, self.fraction * clients)

    def _normals(self, length: int, seed: int, purpose: str, index: int) -> Vector:
        """Draw from the operating system, or from the seed if reproducible."""
        if self.reproducible:
            return generator(seed, purpose, index).normal(0.0, 1.0, length)
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
