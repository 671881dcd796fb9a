"""Lateness: how long a server waits for clients, clients late in a simulation, what a late update is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal, TypeAlias

import numpy as np

from fedmerit.core.facts import STALENESS
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId, Cohort, Family, History, Vector
from fedmerit.errors import ConfigError

LateAnswers: TypeAlias = Literal["drop", "use"]
"""What becomes of an answer that comes after its round: it is dropped, or used in the round in which it comes."""
ROUNDING = 1e-9
"""0.7 * 10 is a little more than 7."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for all, but after `seconds` only for `at_least` this share of those that the round needs.

    A round needs all whom it asked. With `over` it asked so many times as many as it needs [Bonawitz 2019],
    and goes on at once when the first of them, as many as it needs, have answered.

    >>> wait = Wait(at_least=0.8, seconds=60)
    >>> wait.is_over(8, 10, 59), wait.is_over(8, 10, 60), wait.is_over(7, 10, 600)
    (False, True, False)
    >>> Wait(at_least=0.8, seconds=60, over=1.3).is_over(10, 13, 5)
    True
    """

    at_least: float
    seconds: float
    over: float = 1.0
    late: LateAnswers = "drop"

    def needed(self, asked: int) -> int:
        """How many answers end a round at once: all, or with over-selection the first so many."""
        return max(1, floor(asked / self.over + ROUNDING))

    def enough(self, asked: int) -> int:
        """How many answers a round can go on with after the deadline: at least one."""
        return max(1, ceil(self.at_least * self.needed(asked) - ROUNDING))

    def is_over(self, answered: int, asked: int, seconds: float) -> bool:
        """Whether a round goes on without the others."""
        whole = self.over > 1 and answered >= self.needed(asked)
        return whole or (seconds >= self.seconds and answered >= self.enough(asked))

    def ends(self, arrivals: Sequence[float]) -> float:
        """When a round ends whose clients answer at these times."""
        if not arrivals:
            return 0.0
        in_order = sorted(arrivals)
        whole = in_order[self.needed(len(in_order)) - 1]
        return whole if whole <= self.seconds else max(self.seconds, in_order[self.enough(len(in_order)) - 1])


@dataclass(frozen=True, slots=True)
class Delays:
    """Simulated: a client answers after `usual` seconds, and with the chance `share` by Exp(1) times `seconds` later.

    Each draw derives from the run's seed, the round and the client. Who is late in one round is back in the next,
    unless late answers are used: then it is away until its answer comes.

    >>> sorted(Delays(0.5, 100.0, Wait(0.5, 10.0)).late(1, range(6), seed=0))
    [3, 4, 5]
    """

    share: float
    seconds: float
    wait: Wait
    usual: float = 0.0

    def arrivals(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, float]:
        """When each client answers; who is not delayed, after the usual time."""
        times = {}
        for client in clients:
            random = generator(seed, "delay", index, client)
            delay = float(random.exponential(self.seconds)) if random.random() < self.share else 0.0
            times[client] = self.usual + delay
        return times

    def ends(self, arrivals: Sequence[float]) -> float:
        """When a round ends; one in which nobody could be asked lasts until its deadline."""
        return self.wait.ends(arrivals) if arrivals else self.wait.seconds

    def late(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, str]:
        """Who answers after the round has ended, in words for the ledger."""
        arrivals = self.arrivals(index, clients, seed)
        ends = self.ends(list(arrivals.values()))
        late = {
            client: f"late: it would have answered after {time:.1f} s, and the round went on after {ends:.1f} s"
            for client, time in arrivals.items()
            if time > ends
        }
        needed = self.wait.needed(len(arrivals))
        if len(arrivals) - len(late) > needed:  # some answer at the same time as the last needed
            order = sorted(
                arrivals, key=lambda client: (arrivals[client], generator(seed, "order", index, client).random())
            )
            told = f"not needed: {needed} of the {len(arrivals)} that were asked had answered after {ends:.1f} s"
            late |= {client: told for client in order[needed:] if client not in late}
        return late


@dataclass(frozen=True, slots=True)
class Staleness:
    """(1 + s) ** -power, s the rounds since the one that the update answers: 1 for one in time [Xie 2019].

    >>> from fedmerit.core.updates import Updates
    >>> came = Cohort(5, (0, 1), Updates(np.ones((2, 1), np.float32)), {"staleness": np.array([0.0, 3.0])})
    >>> Staleness()(came, History()).tolist()
    [1.0, 0.5]
    """

    power: float = 0.5
    family: Family = Family.TRUST
    required_facts: tuple[str, ...] = (STALENESS,)
    degree: bool = True
    name: str = "Staleness"
    about: str = "freshness: 1 / sqrt(1 + rounds that the update is late), see run.wait.late; 1 for one in time"

    def __post_init__(self) -> None:
        if not 0 <= self.power < np.inf:
            raise ConfigError(f"the power by which stale updates are discounted is 0 or more; got {self.power}")

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Older updates, smaller values."""
        return np.asarray((1.0 + cohort.facts[STALENESS]) ** -self.power)
