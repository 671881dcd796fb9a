"""Selection: who takes part in a round, and for how many epochs each trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError

Chosen: TypeAlias = Mapping[ClientId, int | None]
"""The clients of a round in id order, with their epochs; None: as the task says."""

FEWEST = 10
"""Clients that are drawn for a round where nobody says how many."""


class Selection(Protocol):
    """A choice of clients, derived from the seed and the round alone."""

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Who of the clients 0..clients-1 takes part in round `index`."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """max(round(C * K), 1) clients, uniformly without replacement [FedAvg, Alg. 1].

    `over`: so many times as many, of which the round needs those that answer first, see `core.lateness.Wait`.

    >>> len(Uniform(0.5, over=1.3)(index=1, clients=20, seed=0))
    13
    """

    fraction: float = 0.1
    over: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"a fraction of the clients lies above 0 and up to 1; got {self.fraction}")
        if not self.over >= 1:
            raise ConfigError(f"over-selection asks 1 or more times the clients that a round needs; got {self.over}")

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """In id order, with the task's epochs."""
        return dict.fromkeys(draw(self.fraction, clients, seed, "select", index, over=self.over))


@dataclass(frozen=True, slots=True)
class Available:
    """Of those who are there at the hour of the round, as many as `Uniform` draws of all; all of them where fewer are.

    hours    (from, to, clients): the hours of the day, 0..24, in which so many clients can be asked, dealt in client
             order and again from the start until all have some; from 22 to 6 goes over midnight, from 8 to 8 all day
    hour_of  the hour of the day at which a round begins

    >>> night_and_day = Available(Uniform(1.0), ((22, 6, 1), (8, 18, 1)), hour_of=lambda index: 23.5)
    >>> night_and_day(index=1, clients=4, seed=0)
    {0: None, 2: None}
    """

    of: Uniform
    hours: tuple[tuple[float, float, int], ...]
    hour_of: Callable[[int], float]

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """In id order, with the task's epochs; it may be nobody."""
        hour, pattern = self.hour_of(index), deal_hours(self.hours)
        there = [client for client in range(clients) if is_within(hour, pattern[client % len(pattern)])]
        number = min(_number(self.of.fraction, clients, self.of.over), len(there))
        drawn = generator(seed, "select", index).choice(len(there), size=number, replace=False) if there else ()
        return dict.fromkeys(sorted(there[int(place)] for place in drawn))


def deal_hours(hours: Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    """The hours of client 0, 1, ... until they begin again."""
    return [(start, end) for start, end, clients in hours for _ in range(clients)]


def is_within(hour: float, span: tuple[float, float]) -> bool:
    """Whether an hour of the day lies from the one to the other, over midnight where the first is later.

    >>> is_within(23, (22, 6)), is_within(6, (22, 6)), is_within(3, (8, 8))
    (True, False, True)
    """
    start, end = span
    return start <= hour < end if start < end else hour >= start or hour < end


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each client with the chance q, independently of all others: the sampling that privacy accounts amplify by.

    The number of clients differs from round to round, and may be 0.

    >>> Poisson(1.0)(index=1, clients=3, seed=0)
    {0: None, 1: None, 2: None}
    """

    fraction: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"a client takes part with a chance above 0 and up to 1; got {self.fraction}")

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """In id order, with the task's epochs."""
        taken = generator(seed, "poisson", index).random(clients) < self.fraction
        return dict.fromkeys(int(client) for client in np.flatnonzero(taken))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Each client takes part in exactly rounds x rate rounds, drawn once: lazy, normal, diligent [M2F, sec. 5.2].

    `rates` are pairs (rate, how many clients), dealt in client order and again from the start until all have one:
    ((0.2, 6), (0.5, 6), (1.0, 8)) is the paper's mix. With `epochs` (least, most) each client has a number of its own.

    >>> schedule = Schedule(rounds=10, rates=((0.2, 1), (1.0, 1)))
    >>> sum(0 in schedule(index, clients=2, seed=1) for index in range(1, 11))
    2
    """

    rounds: int
    rates: tuple[tuple[float, int], ...] = ((1.0, 1),)
    epochs: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.rates or not all(0 < rate <= 1 and count >= 1 for rate, count in self.rates):
            raise ConfigError(f"a rate lies above 0 and up to 1, for 1 or more clients; got {list(self.rates)}")
        if self.epochs is not None and not 1 <= self.epochs[0] <= self.epochs[1]:
            raise ConfigError(f"epochs are a least number, 1 or more, and a most; got {list(self.epochs)}")

    def rate(self, client: ClientId) -> float:
        """The client's share of the rounds."""
        pattern = [rate for rate, count in self.rates for _ in range(count)]
        return pattern[client % len(pattern)]

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Those whose turn it is; it may be nobody's."""
        turns, epochs = _plan(self, clients, seed)
        return {int(client): epochs.get(int(client)) for client in np.flatnonzero(turns[index - 1])}


@lru_cache(maxsize=2)
def _plan(schedule: Schedule, clients: int, seed: int) -> tuple[NDArray[np.bool_], Mapping[ClientId, int]]:
    """Who takes part when (rounds, clients), and everybody's epochs where they have their own."""
    turns = np.zeros((schedule.rounds, clients), dtype=np.bool_)
    for client in range(clients):
        number = round(schedule.rounds * schedule.rate(client))
        turns[generator(seed, "schedule", client).permutation(schedule.rounds)[:number], client] = True
    if schedule.epochs is None:
        return turns, {}
    least, most = schedule.epochs
    epochs = [int(generator(seed, "epochs", client).integers(least, most + 1)) for client in range(clients)]
    return turns, dict(enumerate(epochs))


def draw(fraction: float, clients: int, seed: int, purpose: str, index: int, over: float = 1.0) -> tuple[ClientId, ...]:
    """max(round(fraction * clients), 1) of the clients, or `over` times as many, in id order."""
    number = _number(fraction, clients, over)
    drawn = generator(seed, purpose, index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def _number(fraction: float, clients: int, over: float) -> int:
    return min(ceil(over * max(round(fraction * clients), 1) - 1e-9), clients)


def default_fraction(clients: int) -> float:
    """A tenth of the clients, but at least ten of them, or all: of eight hospitals all eight take part.

    >>> default_fraction(8), default_fraction(20), default_fraction(1000)
    (1.0, 0.5, 0.1)
    """
    return max(0.1, min(1.0, FEWEST / clients))
