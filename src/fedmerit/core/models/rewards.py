"""Rewards: the part of its group's aggregate that a client gets, and its test before it accepts [M2F]."""

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

Share: TypeAlias = Literal["sum", "max", "tanh"]

ROUNDING = 1e-9
"""Tolerance of products: 0.1 * 100 may be slightly more than 10."""


class Reward(Protocol):
    """Part of the aggregate for each client of a group."""

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """Return a part per client, in the order of `weights` and `updates`; `layers` are the layers' lengths."""


@part("reward", "whole")
class Whole:
    """The whole aggregate for every client."""

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """Return the same part for each client."""
        return [SparseUpdate(aggregate)] * len(weights)


@part("reward", "nothing")
class Nothing:
    """No reward: each client trains locally.

    >>> [part.nbytes for part in Nothing()(np.ones(3, np.float32), np.array([0.5, 0.5]), Updates(np.ones((2, 3))), [3])]
    [0, 0]
    """

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """Return an empty part for each client, which is not sent."""
        return [SparseUpdate(aggregate[:0], np.empty(0, np.uint32))] * len(weights)


@part("reward", "top-share")
class TopShare:
    """Reward r_i: the num_i largest entries of the aggregate, num_i = ceil(share_i * length) [M2F, eq. 6].

    share   the client's weight w_i = q_i / sum q (the paper); or `max`, w_i / max w, so that the best gets all [RFFL];
            or `tanh`, tanh(w_i) / max tanh(w), between the two [CGSV]

    The largest magnitudes are those of the whole model; with `tanh` a part of num_i in each layer, as in CGSV. Of equal
    entries it is the first.

    >>> aggregate = np.array([3, -4, 1, 0], np.float32)
    >>> weights, updates = np.array([0.5, 0.25]), Updates(np.zeros((2, 4), np.float32))
    >>> parts = TopShare()(aggregate, weights, updates, layers=[4])
    >>> [part.values.tolist() for part in parts]
    [[3.0, -4.0], [-4.0]]
    """

    share: Annotated[Share, Doc("share of entries: weight, weight / `max` of the group, or `tanh` (CGSV)")] = "sum"

    def __call__(
        self, aggregate: Model, weights: Vector, updates: Updates, layers: Sequence[int]
    ) -> list[SparseUpdate]:
        """Return a part per client."""
        sizes = np.abs(aggregate)
        numbers = [entries(share, len(aggregate)) for share in self.shares(weights)]
        return [self._part(aggregate, sizes, number, layers) for number in numbers]

    def shares(self, weights: Vector) -> Vector:
        """Share of the aggregate that each weight earns.

        >>> TopShare("max").shares(np.array([0.6, 0.3, 0.0])).tolist()
        [1.0, 0.5, 0.0]
        """
        merits = np.tanh(weights) if self.share == "tanh" else weights
        best = merits.max(initial=0.0)
        return merits / best if self.share != "sum" and best > 0 else merits

    def _part(self, aggregate: Model, keys: Model, number: int, layers: Sequence[int]) -> SparseUpdate:
        if number == len(aggregate):
            return SparseUpdate(aggregate)
        places = _top_of_layers(keys, number, layers) if self.share == "tanh" else top(keys, number)
        return SparseUpdate(aggregate[places], places.astype(np.uint32))


def entries(share: float, length: int) -> int:
    """num = ceil(share * length), at most all, 0 for a share of 0."""
    return min(math.ceil(share * length - ROUNDING), length) if share > 0 else 0


def top(keys: Model, number: int) -> NDArray[np.intp]:
    """Places of the largest keys in ascending order; the first of equal keys."""
    if number == 0:
        return np.empty(0, dtype=np.intp)
    # A partition finds the smallest selected key in O(n); a full sort of a large model would cost O(n log n).
    edge = np.partition(keys, len(keys) - number)[len(keys) - number]
    above = np.flatnonzero(keys > edge)
    level = np.flatnonzero(keys == edge)[: number - len(above)]
    return np.sort(np.concatenate([above, level]))


def _top_of_layers(keys: Model, number: int, layers: Sequence[int]) -> NDArray[np.intp]:
    """Distribute `number` entries over the layers by their lengths, the remainder by the largest fractions."""
    if sum(layers) != len(keys):
        raise ConfigError(f"the lengths of the layers must sum to {len(keys)}, the model's (got {sum(layers)})")
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
    """A client's test of its reward: accuracy must rise, or fall by a smaller share than `sigma` [M2F, Alg. 1].

    Accuracy cannot fall by more than its whole value: above 1 every reward is accepted.
    """

    sigma: Annotated[float, Interval(ge=0), Doc("relative fall of accuracy below which a reward is accepted")]

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def refuses(self) -> bool:
        """Whether the test can make a client refuse."""
        return self.sigma <= 1

    def __call__(self, before: float, after: float) -> bool:
        """Whether the reward is accepted; also by a client that cannot test (NaN) or had an accuracy of 0."""
        if math.isnan(before) or before == 0:
            return True
        return bool(after > before or (before - after) / before < self.sigma)


def wrong_reward(reward: SparseUpdate, length: int) -> str:
    """Return the reason to reject a reward, whatever its sender; empty if it is valid."""
    values, places = np.asarray(reward.values), reward.places
    if values.ndim != 1 or values.dtype != np.float32 or not np.isfinite(values).all():
        return "the reward's values must be finite float32 numbers"
    if places is None:
        return "" if len(values) == length else f"the reward has {len(values)} values, but the model has {length}"
    if places.shape != values.shape or not np.issubdtype(places.dtype, np.integer):
        return (
            f"the reward has {len(values)} values and {len(places)} places; both must be equally many, places integer"
        )
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < length:
        return f"the reward's places must be below {length}, the length of the model"
    if (places[1:] <= places[:-1]).any():
        return "the reward's places must be in ascending order"

    return ""
