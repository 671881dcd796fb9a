"""Privacy: the aggregate of a round as a bounded sum with Gaussian noise, and which recipes allow it.

    (sum_k s_k / s_max * clip(update_k, C) + N(0, (z C)^2 I)) * cap / (q K)

s_k is the client's own score, s_max the largest that its operator gives, q K the expected number of clients of a round:
nothing in it but the sum depends on who takes part. So one client more or less moves the sum by at most C, whatever it
claims or sends, exactly as in the unweighted mean: earned weights cost signal, not privacy. docs/privacy.md has the
proof. The noise of a real run comes from the operating system's generator.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import scipy

from fedmerit.core.collect.selection import Poisson, Selection
from fedmerit.core.criteria.client_fact import OwnFact
from fedmerit.core.criteria.table import CRITERIA, Attribute, Criterion, LossPower, Validated
from fedmerit.core.search.search import Fixed
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.seeds import generator
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.aggregators import Mean
from fedmerit.core.server.centring import Centre, Centring, FeatureSums, MakeCentring
from fedmerit.core.server.optimizers import Extrapolated
from fedmerit.core.server.private_centring import CentreNoise
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.types import ClientId, Cohort, Matrix, Model, Vector
from fedmerit.core.weights.scores import Prioritized, Score
from fedmerit.core.weights.weigh import Note, Weights
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.recipe import Recipe

Accountant: TypeAlias = Literal["rdp", "pld"]
VOID = "the noise comes from the run's seed (privacy.reproducible): the guarantee is void"
OF_THE_CLIENT_ALONE = ("DS", "LD", "LC", "CB", "IS", "Sharpness", "MW", "Participation")
"""Criteria that read the client's own facts, update and past, and nobody else's."""
CLIP = "clip"
"""The part of a state that holds the length of an adaptive clip."""
FIXED = "fixed"
"""The part that holds how many entries at the end of a model are its centring, which no round moves or noises."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """Client-level differential privacy of the model, by noise at the server.

    clip          C: the length that an update is shortened to where it is longer; or how it adapts
    noise         z: the noise on the sum has the standard deviation z C, slightly more where the clip adapts
    fraction      q: the chance of each client to take part in a round, of its own (Poisson)
    delta         the account states epsilon at this delta
    accountant    `rdp`, or `pld`, which is tighter and slower
    reproducible  noise and selection come from the run's seed, for tests: the guarantee is void
    search        the part of the budget that the answers to a search over steps take; None: nobody is asked
    centre        the noise on the federation's mean input, an event of its own; None: inputs are left as they are

    >>> Privacy(clip=1.0, noise=1.1, fraction=0.1).deviation(clients=1000, cap=1.0)
    0.011000000000000001
    """

    clip: float | AdaptiveClip
    noise: float
    fraction: float
    delta: float = 1e-5
    accountant: Accountant = "rdp"
    reproducible: bool = False
    search: SearchNoise | None = None
    centre: CentreNoise | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.clip, AdaptiveClip) and not 0 < self.clip < np.inf:
            raise ConfigError(f"privacy.clip is the most that an update may be long, above 0; got {self.clip}")
        if not 0 < self.noise < np.inf:
            raise ConfigError(f"privacy.noise is a multiple of the clip, above 0; got {self.noise}")
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"a client takes part with a chance above 0 and up to 1; got {self.fraction}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta lies between 0 and 1, and below 1 / clients; got {self.delta}")

    def factor(self, clients: int, cap: float | None) -> float:
        """cap / (q K): what the sum is multiplied by; no client holds more than `cap` expected equal shares."""
        return (1.0 if cap is None else cap) / (self.fraction * clients)

    def deviation(self, clients: int, cap: float | None) -> float:
        """The standard deviation of the noise in each entry of the aggregate; in the first round where C adapts."""
        return self.sum_noise(clients) * self.clip_in({}) * self.factor(clients, cap)

    def sum_noise(self, clients: int) -> float:
        """The multiple of C that is the noise on the sum: z, or what a search and a noised quantile leave of it."""
        if not isinstance(self.clip, AdaptiveClip):
            return self._update_noise
        return self.clip.noise_on_updates(self._update_noise, self.fraction * clients)

    @property
    def _update_noise(self) -> float:
        """The multiplier of all that is told of the updates: their sum, and their quantile where the clip adapts."""
        return self.noise if self.search is None else self.search.on_updates(self.noise)

    def clip_in(self, parts: Mapping[str, Model]) -> float:
        """C of a round that starts with these parts of the state."""
        if not isinstance(self.clip, AdaptiveClip):
            return self.clip
        return float(parts[CLIP][0]) if CLIP in parts else self.clip.start

    def next_clip(self, clip: float, norms: Vector, clients: int, seed: int, index: int) -> Mapping[str, Model]:
        """What the state keeps of the clip after a round with updates of these lengths; nothing where it is fixed."""
        if not isinstance(self.clip, AdaptiveClip):
            return {}
        expected = self.fraction * clients
        draw = float(self._normals(1, seed, "privacy quantile", index)[0])
        noise = draw * self.clip.count_deviation(self._update_noise, expected)
        return {CLIP: np.array([self.clip.after(clip, norms, noise, expected)], np.float32)}

    def noisy_gains(self, gains: Matrix, clients: int, seed: int, index: int) -> Vector:
        """The mean gain of each candidate by gains (clients, candidates); noise alone where there are no clients."""
        assert self.search is not None  # the recipe was checked
        deviation = self.search.on_gains(self.noise) * self.search.clip
        noise = deviation * self._normals(gains.shape[1], seed, "privacy gains", index)
        return (self.search.total(gains) + noise) / (self.fraction * clients)

    def make_centring(self, clients: int, seed: int) -> MakeCentring:
        """How the mean input of so many clients in all is told, with noise; who did not answer counts as zeros."""

        def noisy(sums: Mapping[ClientId, FeatureSums], _: Centre) -> Centring:
            assert self.centre is not None  # the task was checked
            total = self.centre.total(sums)
            noise = self.centre.noise * self.centre.clip * self._normals(len(total), seed, "privacy centre", 0)
            return Centring((total + noise) / clients)

        return noisy

    def noise_on(self, length: int, deviation: float, seed: int, index: int) -> Vector:
        """Noise for a sum of so many entries: from the operating system, or from the seed where it is reproducible."""
        return deviation * self._normals(length, seed, "privacy", index)

    def _normals(self, length: int, seed: int, purpose: str, index: int) -> Vector:
        if self.reproducible:
            return generator(seed, purpose, index).normal(0.0, 1.0, length)
        return secret_normals(length)

    def selection_seed(self, seed: int) -> int:
        """What the round's clients are drawn from: who takes part must stay secret, or sampling amplifies nothing."""
        return seed if self.reproducible else secrets.randbits(63)


def secret_normals(length: int) -> Vector:
    """Standard normal draws from os.urandom: 52 random bits each, through the inverse of the distribution function."""
    bits = np.frombuffer(os.urandom(8 * length), np.uint64) >> np.uint64(12)
    return np.asarray(scipy.special.ndtri((bits + 0.5) / 2.0**52))


def shares_of_the_sum(score: Score, scores: Vector, criteria: int) -> Vector:
    """min(s_k / s_max, 1), s_max the score of a client with 1 in every criterion.

    >>> shares_of_the_sum(Prioritized(), np.array([0.5, 2.0]), criteria=2).tolist()
    [0.25, 1.0]
    """
    largest = float(score(np.ones((1, criteria)))[0])
    return np.minimum(scores / largest, 1.0) if largest > 0 else np.zeros(len(scores))


def clip_factors(norms: Vector, clip: float) -> Vector:
    """min(1, C / norm): what an update is multiplied by.

    >>> clip_factors(np.array([0.5, 4.0]), 1.0).tolist()
    [1.0, 0.25]
    """
    return np.asarray(clip / np.maximum(norms, clip))


def private_aggregate(
    recipe: Recipe, cohort: Cohort, weights: Weights | None, clip: float, length: int, clients: int, seed: int
) -> Vector:
    """The noisy aggregate of a round, of the first `length` entries; noise alone where nobody came.

    Silence would tell that nobody did.
    """
    privacy = recipe.privacy
    assert privacy is not None  # the caller asked
    total = privacy.noise_on(length, privacy.sum_noise(clients) * clip, seed, cohort.index)
    if weights is not None and len(cohort.ids):
        shares = shares_of_the_sum(recipe.score, weights.scores, len(recipe.criteria))
        total += cohort.updates.combine(shares * clip_factors(cohort.updates.norms, clip))[:length]
    return total * privacy.factor(clients, recipe.cap)


def privacy_notes(privacy: Privacy | None, cohort: Cohort, clip: float | None) -> tuple[Note, ...]:
    """How many updates were shortened, and that the guarantee is void where it is."""
    if privacy is None or clip is None:
        return ()
    norms, notes = cohort.updates.norms, []
    cut = int((norms > clip).sum())
    if cut:
        text = f"the clip of {clip:.4g} shortened {cut} of {len(norms)} updates; their median length is "
        notes.append(Note("clipped", "updates", f"{text}{np.median(norms):.3g}"))
    if privacy.reproducible:
        notes.append(Note("privacy-void", "noise", VOID))
    return tuple(notes)


def check_private(recipe: Recipe) -> None:
    """Refuse what the account does not cover, each with its reason and the way out."""
    reason = next((reason for broken, reason in _refusals(recipe) if broken), None)
    if reason is not None:
        raise ConfigError(f"[privacy] does not go with this recipe: {reason}")


def _refusals(recipe: Recipe) -> list[tuple[bool, str]]:
    """What would be outside of the account: (whether the recipe has it, why it is refused and the way out)."""
    foreign = [one.name for one in recipe.criteria if not _own(one)]
    return [
        (
            recipe.personal is not None,
            "groups and personal rewards tell a client about the updates of others, outside of the noisy sum; use "
            'recipe "prioritized"',
        ),
        *_refused_searches(recipe),
        (
            recipe.normalise not in ("scale", "none"),
            f'normalise "{recipe.normalise}" divides by what other clients have, so that one client changes '
            'everybody\'s weight; use recipe.normalise = "scale" with recipe.scales, for example '
            '{DS = 500}, in recipe "prioritized"',
        ),
        (
            bool(foreign),
            f"{', '.join(foreign)} compares clients with each other, or is not known to go by the client alone; use "
            f"{', '.join(OF_THE_CLIENT_ALONE)}, LossPower, attribute:NAME, fact:NAME or validated:OBJECTIVE",
        ),
        (
            type(recipe.score).__module__ != Prioritized.__module__,
            f"{recipe.score!r} ranks clients against each other, or has no known largest value, without which weights "
            "have no cap; use one of the scores of `fedmerit scores`, without a rank",
        ),
        (
            recipe.rho == "1/K" and bool(recipe.validated),
            'rho "1/K" depends on how many clients came; give it a number, recipe.server.rho = 0.5',
        ),
        (
            recipe.claims is not None,
            "claims are bounded by the median of the round, which is other clients'; the scales bound them here, leave "
            "recipe.claims out",
        ),
        (
            recipe.cap_group is not None,
            "a cap of sites moves weight from client to client; recipe.cap alone bounds everybody, leave cap_group out",
        ),
        (
            isinstance(recipe.step, Extrapolated),
            "its step goes by the lengths of the updates themselves; use plain, momentum, adam, yogi or adagrad",
        ),
        (
            not isinstance(recipe.aggregate, Mean),
            f"the account is of a sum, and {recipe.aggregate!r} is none; leave recipe.aggregate out: clip and scales "
            "bound everybody",
        ),
        (
            recipe.clip is not None,
            "recipe.clip goes by the lengths of all updates, or cuts twice; privacy.clip alone is in the account",
        ),
        (recipe.initial > 0, "the initial phase averages models without noise; leave recipe initial at 0"),
    ]


def _refused_searches(recipe: Recipe) -> list[tuple[bool, str]]:
    """A search over steps has noised answers; any other weighs in several ways, each a sum of its own."""
    search, noise = recipe.search, recipe.privacy.search if recipe.privacy else None
    over_steps = isinstance(search, BoldestFirst) and bool(search.steps) and not search.among
    summed = isinstance(search, BoldestFirst) and (search.judges, search.count, search.rungs) == ("round", "mean", None)
    return [
        (
            not isinstance(search, Fixed) and not over_steps,  # also one that asks nobody: it may weigh in other ways
            "its search weighs in several ways, and each would be a noisy sum of its own; use a fixed order, recipe "
            '"prioritized", or a search over steps alone, recipe "adaptive"',
        ),
        (
            over_steps and noise is None,
            "a search asks clients about models, and their answers are not noised; give them a part of the budget, "
            'privacy.search_share = 0.1, or use a fixed order, recipe "prioritized"',
        ),
        (
            over_steps and not summed,
            "answers are noised as a sum over the clients of the round; set recipe.search.judges = "
            '"round" and recipe.search.count = "mean", and leave recipe.search.rungs out',
        ),
        (
            isinstance(search, Fixed) and noise is not None,
            'privacy.search_share has no effect with a fixed order; leave it out, or use recipe "adaptive"',
        ),
    ]


def _own(criterion: Criterion) -> bool:
    """Whether the criterion's value of a client depends on no other client."""
    if isinstance(criterion, OwnFact):
        return not criterion.less  # which compares with the least of the round
    if isinstance(criterion, Attribute | Validated | LossPower):
        return True
    return criterion.name in OF_THE_CLIENT_ALONE and criterion == CRITERIA[criterion.name]


def check_selection(privacy: Privacy, selection: Selection, clients: int) -> None:
    """The account is of the selection that is drawn, and its delta means something for so many clients."""
    if not isinstance(selection, Poisson):
        raise ConfigError(
            f"[privacy] accounts for clients that take part each by a chance of its own, and here {selection!r} draws; "
            'set run.selection = "poisson"'
        )
    if selection.fraction != privacy.fraction:
        raise ConfigError(
            f"the account is for a fraction of {privacy.fraction:g}, and {selection.fraction:g} of the clients are "
            "drawn; give both the same"
        )
    if privacy.delta > 1 / clients:
        raise ConfigError(
            f"privacy.delta is at most 1 / clients = {1 / clients:.3g}: with {privacy.delta:g} a mechanism that "
            f"publishes a whole client would pass; set privacy.delta = {0.1 / clients:.1g} or less"
        )
