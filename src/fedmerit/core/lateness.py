"""Lateness: how long a server waits for the clients of a round, and clients that are late in a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

from fedmerit.core.seeds import generator
from fedmerit.core.types import NOTHING, ClientId, Download, Replies


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for all, but after `seconds` only for `at_least` this share of those asked.

    >>> wait = Wait(at_least=0.8, seconds=60)
    >>> wait.is_over(8, 10, 59), wait.is_over(8, 10, 60), wait.is_over(7, 10, 600)
    (False, True, False)
    """

    at_least: float
    seconds: float

    def enough(self, asked: int) -> int:
        """How many answers a round can go on with: at least one."""
        return max(1, ceil(self.at_least * asked - 1e-9))  # 0.7 * 10 is a little more than 7

    def is_over(self, answered: int, asked: int, seconds: float) -> bool:
        """Whether a round goes on without the others."""
        return seconds >= self.seconds and answered >= self.enough(asked)

    def ends(self, arrivals: Sequence[float]) -> float:
        """When a round ends whose clients answer at these times."""
        in_order = sorted(arrivals)
        if not in_order or in_order[-1] <= self.seconds:
            return in_order[-1] if in_order else 0.0
        return max(self.seconds, in_order[self.enough(len(in_order)) - 1])


@dataclass(frozen=True, slots=True)
class Delays:
    """Simulated: in each round a client is delayed with the chance `share`, by Exp(1) times `seconds`.

    Each draw derives from the run's seed, the round and the client. Who is late in one round is back in the next.

    >>> sorted(Delays(0.5, 100.0, Wait(0.5, 10.0)).late(1, range(6), seed=0))
    [3, 4, 5]
    """

    share: float
    seconds: float
    wait: Wait

    def arrivals(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, float]:
        """When each client answers; who is not delayed, at once."""
        times = {}
        for client in clients:
            random = generator(seed, "delay", index, client)
            times[client] = float(random.exponential(self.seconds)) if random.random() < self.share else 0.0
        return times

    def late(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, str]:
        """Who answers after the round has ended, in words for the ledger."""
        arrivals = self.arrivals(index, clients, seed)
        ends = self.wait.ends(list(arrivals.values()))
        return {
            client: f"late: it would have answered after {time:.1f} s, and the round went on after {ends:.1f} s"
            for client, time in arrivals.items()
            if time > ends
        }


class Trains(Protocol):
    """Clients that train, as a fleet has them."""

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """Deliver, train, collect."""


def train_in_time(
    clients: Trains,
    index: int,
    downloads: Mapping[ClientId, Download],
    facts: Sequence[str],
    seed: int,
    delays: Delays | None,
) -> Replies:
    """The replies of those who are in time; the late are named among the failed, and nothing of theirs is used."""
    late = delays.late(index, sorted(downloads), seed) if delays else NOTHING
    in_time = {client: download for client, download in downloads.items() if client not in late}
    replies = clients.train(index, in_time, facts, seed)
    return replace(replies, failed={**replies.failed, **late}) if late else replies
