"""Rewards: what a client gets back of its group's aggregate, and whether it takes it [M2F]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.parts import Doc, check_settings, part
from fedmerit.core.types import Model, SparseUpdate, Vector
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

Scope: TypeAlias = Literal["model", "layer"]
Share: TypeAlias = Literal["sum", "max", "tanh"]

ROUNDING = 1e-9
"""A tenth of 100 entries is 10, though 0.1 * 100 may be a little more."""


class Reward(Protocol):
    """What each client of a group is sent."""

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """A part per client, in the order of `weights` and `updates`; `layers` are the lengths of the model's."""


@part("reward", "whole")
class Whole:
    """The whole aggregate for everybody."""

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """The same part for each client."""
        return [SparseUpdate(aggregate)] * len(weights)


@part("reward", "nothing")
class Nothing:
    """Nothing for anybody: each client is on its own.

    >>> [part.nbytes for part in Nothing()(np.ones(3, np.float32), np.array([0.5, 0.5]), Updates(np.ones((2, 3))), [3])]
    [0, 0]
    """

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """An empty part for each client, which is not sent."""
        return [SparseUpdate(aggregate[:0], np.empty(0, np.uint32))] * len(weights)


@part("reward", "top-share")
class TopShare:
    """r_i: the num_i largest entries of the aggregate, num_i = ceil(share_i * length) [M2F, eq. 6].

    `share`: the client's weight w_i = q_i / sum q (the paper); or w_i / max w, so that the best gets all [RFFL]; or
    tanh(beta w_i) / max tanh(beta w), all for everybody where the altruism `beta` is large [CGSV]. The largest entries
    are those of the largest magnitude, over the whole model or (`scope`) in each layer its part of num_i; of equal
    entries the first.

    Shares are tempered so that collaboration is kept: floor + (1 - floor) * share ** (1 / temperature) for whoever has
    a weight above 0. At a high `temperature` everybody gets all, near 0 only who has a share of 1 gets more than the
    `floor`.

    >>> aggregate, updates = np.array([3, -4, 1, 0], np.float32), Updates(np.zeros((2, 4), np.float32))
    >>> [part.values.tolist() for part in TopShare()(aggregate, np.array([0.5, 0.25]), updates, layers=[4])]
    [[3.0, -4.0], [-4.0]]
    """

    share: Annotated[Share, Doc("share of entries: weight, weight / `max` of the group, or `tanh` of it (CGSV)")] = (
        "sum"
    )
    scope: Annotated[Scope, Doc("largest of the whole model, or of each `layer`")] = "model"
    floor: Annotated[float, Interval(ge=0, le=1), Doc("the least share for a client with a weight above 0")] = 0.0
    temperature: Annotated[float, Interval(gt=0), Doc("shares to the power 1 / this: above 1 they are more alike")] = (
        1.0
    )
    beta: Annotated[float, Interval(gt=0), Doc("of `tanh`: the larger, the more alike are rewards")] = 1.0

    def __post_init__(self) -> None:
        if self.share != "tanh" and self.beta != 1:
            raise ConfigError(f'`beta` of top-share has no effect with share = "{self.share}"; use share = "tanh"')

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """A part per client."""
        sizes = np.abs(aggregate)
        numbers = [entries(share, len(aggregate)) for share in self.shares(weights)]
        return [self._part(aggregate, sizes, number, layers) for number in numbers]

    def shares(self, weights: Vector) -> Vector:
        """What share of the aggregate each weight earns.

        >>> TopShare("max", floor=0.5).shares(np.array([0.6, 0.3, 0.0])).tolist()
        [1.0, 0.75, 0.0]
        """
        merits = np.tanh(self.beta * weights) if self.share == "tanh" else weights
        best = merits.max(initial=0.0)
        earned = merits / best if self.share != "sum" and best > 0 else merits
        tempered = self.floor + (1 - self.floor) * earned ** (1 / self.temperature)
        return np.where(weights > 0, tempered, 0.0)

    def _part(self, aggregate: Model, keys: Model, number: int, layers: Sequence[int]) -> SparseUpdate:
        if number == len(aggregate):
            return SparseUpdate(aggregate)
        places = top(keys, number) if self.scope == "model" else _top_of_layers(keys, number, layers)
        return SparseUpdate(aggregate[places], places.astype(np.uint32))


def entries(share: float, length: int) -> int:
    """num = ceil(share * length), at most all, none for a share of 0."""
    return min(math.ceil(share * length - ROUNDING), length) if share > 0 else 0


def top(keys: Model, number: int) -> NDArray[np.intp]:
    """The places of the largest keys, rising; of equal ones the first."""
    if number == 0:
        return np.empty(0, dtype=np.intp)
    edge = np.partition(keys, len(keys) - number)[len(keys) - number]
    above = np.flatnonzero(keys > edge)
    level = np.flatnonzero(keys == edge)[: number - len(above)]
    return np.sort(np.concatenate([above, level]))


def _top_of_layers(keys: Model, number: int, layers: Sequence[int]) -> NDArray[np.intp]:
    """`number` entries dealt to the layers by their lengths, the remainder to the largest fractions."""
    if sum(layers) != len(keys):
        raise ConfigError(f"layers have {sum(layers)} entries together, the model {len(keys)}")
    exact = number * np.asarray(layers, dtype=np.float64) / len(keys)
    counts = np.floor(exact).astype(np.intp)
    counts[np.argsort(counts - exact, kind="stable")[: number - counts.sum()]] += 1
    starts = np.concatenate([[0], np.cumsum(layers)])
    parts = [
        start + top(keys[start : start + length], count)
        for start, length, count in zip(starts, layers, counts, strict=False)
    ]
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A client's test of its reward: it must do better, or fall by less than `sigma` of what it had [M2F, Alg. 1].

    Nobody falls by more than all of it: above 1 every reward is taken.
    """

    sigma: Annotated[float, Interval(ge=0), Doc("relative fall of accuracy below which a reward is taken")]

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def refuses(self) -> bool:
        """Whether any test can make a client refuse."""
        return self.sigma <= 1

    def __call__(self, before: float, after: float) -> bool:
        """Whether the reward is taken; a client that cannot test (NaN), or had nothing to lose, takes it."""
        if math.isnan(before) or before == 0:
            return True
        return bool(after > before or (before - after) / before < self.sigma)


def wrong_reward(reward: SparseUpdate, length: int) -> str:
    """Why a client must not take a reward, whoever sent it; empty where nothing is wrong."""
    values, places = np.asarray(reward.values), reward.places
    if values.ndim != 1 or values.dtype != np.float32 or not np.isfinite(values).all():
        return "the reward's values are not finite float32 numbers"
    if places is None:
        return "" if len(values) == length else f"the reward has {len(values)} values, the model {length}"
    if places.shape != values.shape or not np.issubdtype(places.dtype, np.integer):
        return f"the reward has {len(values)} values and {len(places)} places, which must be as many whole numbers"
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < length:
        return f"a place of the reward lies outside of the model, which has {length} entries"
    if (places[1:] <= places[:-1]).any():
        return "the places of the reward do not rise"
    return ""
