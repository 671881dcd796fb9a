"""Schedules: by how much the clients' learning rate is multiplied in each round; the server says it, clients obey."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fedmerit.errors import ConfigError


class LrSchedule(Protocol):
    """From a round, counted from 1, and the number of rounds to a factor of `train.lr`.

    >>> StepDecay(every=10, factor=0.5)(11)
    0.5
    """

    def __call__(self, index: int, rounds: int | None = None) -> float:
        """The factor, above 0; `rounds` is how many the run has, where that is known."""


@dataclass(frozen=True, slots=True)
class Constant:
    """1 in every round.

    >>> Constant()(7)
    1.0
    """

    def __call__(self, index: int, rounds: int | None = None) -> float:
        """Whatever the round."""
        return 1.0


@dataclass(frozen=True, slots=True)
class StepDecay:
    """factor^floor((t - 1) / every) in round t.

    >>> [StepDecay(every=2, factor=0.1)(t) for t in (1, 2, 3)]
    [1.0, 1.0, 0.1]
    """

    every: int = 10
    factor: float = 0.5

    def __call__(self, index: int, rounds: int | None = None) -> float:
        """The rounds so far, in steps."""
        return float(self.factor ** ((index - 1) // self.every))


@dataclass(frozen=True, slots=True)
class Cosine:
    """least + (1 - least) (1 + cos(pi (t - 1) / T)) / 2 in round t of T [Loshchilov 2017], above 0 in the last, too.

    >>> [round(Cosine()(t, rounds=2), 3) for t in (1, 2)]
    [1.0, 0.5]
    """

    least: float = 0.0

    def __call__(self, index: int, rounds: int | None = None) -> float:
        """From 1 down to almost `least`."""
        if rounds is None:
            raise ConfigError("train.schedule cosine goes by the number of rounds, which is not known here")
        return self.least + (1 - self.least) * (1 + math.cos(math.pi * (index - 1) / rounds)) / 2


@dataclass(frozen=True, slots=True)
class WarmUp:
    """min(1, t / rounds) in round t: up to `train.lr` in so many rounds.

    >>> [WarmUp(rounds=4)(t) for t in (1, 4, 9)]
    [0.25, 1.0, 1.0]
    """

    rounds: int = 5

    def __call__(self, index: int, rounds: int | None = None) -> float:
        """In equal steps."""
        return min(1.0, index / self.rounds)
