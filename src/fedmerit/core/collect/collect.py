"""Collect: select the clients of a round, and decide which answers count in it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Protocol, TypeAlias

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLOCK, EPOCHS, find_fact
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import generator
from fedmerit.core.state import View
from fedmerit.core.types import ClientId, Download, Replies

Chosen: TypeAlias = Mapping[ClientId, int | None]
"""The clients of a round in id order, with their epochs; None: the task's."""

MIN_DEFAULT_CLIENTS = 10
"""Default number of clients per round, if there are that many."""


EVERYONE_FIRST: Words = frozenset({"everyone in round 1"})
NOT_EVERYONE: Mapping[str, str] = {
    "everyone in round 1": 'the selection says who takes part in each round; set recipe.memory = "forget"'
}


class Selection(Protocol):
    """Selection of clients, derived only from the seed and the round."""

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients of 0..clients-1 that take part in round `index`."""


class Collect(Protocol):
    """Selects the clients of a round and returns the replies that count in it."""

    def select(self, view: View) -> Chosen:
        """Return the clients of the round in id order, with their epochs."""

    def collect(self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View) -> Replies:
        """Return the replies, with the facts that only the server knows."""


@part("selection", "uniform")
class Uniform:
    """Draw max(round(C * K), 1) clients uniformly without replacement [FedAvg, Alg. 1].

    fraction   C, the share of the K clients drawn per round

    >>> len(Uniform(0.5)(index=1, clients=20, seed=0))
    10
    """

    fraction: Annotated[float, Interval(gt=0, le=1), Doc("share of the clients drawn per round")] = 0.1

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients in id order, with the task's epochs."""
        return dict.fromkeys(draw(self.fraction, clients, seed, "select", index))


@part("selection", "poisson")
class Poisson:
    """Draw each client with probability q, independently: the sampling that amplifies privacy.

    The number of clients differs from round to round, and may be 0.

    fraction   q, the probability that a client takes part
    secret     draw from the operating system instead of the run's seed, so that the sample stays secret

    >>> Poisson(1.0)(index=1, clients=3, seed=0)
    {0: None, 1: None, 2: None}
    """

    fraction: Annotated[float, Interval(gt=0, le=1), Doc("probability that a client takes part")] = 0.1
    secret: Annotated[bool, Doc("draw from the operating system instead of the run's seed")] = False

    takes: ClassVar[Words] = EVERYONE_FIRST
    why: ClassVar[Mapping[str, str]] = NOT_EVERYONE

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients in id order, with the task's epochs."""
        drawn_from = secrets.randbits(63) if self.secret else seed
        taken = generator(drawn_from, "poisson", index).random(clients) < self.fraction
        return dict.fromkeys(int(client) for client in np.flatnonzero(taken))


@part("collect", "in-time")
class InTime:
    """Ask every selected client in one exchange, and use the answers of the round.

    selection   draws the clients of a round

    >>> InTime(Uniform(0.5)).selection
    Uniform(fraction=0.5)
    """

    selection: Annotated[Selection, Doc("draws the clients of a round")]

    def select(self, view: View) -> Chosen:
        """Return the clients that `selection` draws, each with its epochs."""
        return self.selection(view.index, len(view.host.names), view.draws.run_seed)

    def collect(self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View) -> Replies:
        """Return the replies, with requested epochs and times by the server's clock where they are facts."""
        asked = tuple(name for name in facts if find_fact(name).source == "client")
        replies = view.host.clients.train(view.index, downloads, asked, view.draws.run_seed)
        server_facts = dict(replies.server_facts)
        if any(download.epochs for download in downloads.values()):
            server_facts[EPOCHS] = {client: float(downloads[client].epochs or 1) for client in replies.ids}
        if CLOCK in facts:
            server_facts[CLOCK] = replies.seconds
        return replace(replies, server_facts=server_facts)


def draw(fraction: float, clients: int, seed: int, purpose: str, index: int) -> tuple[ClientId, ...]:
    """Draw max(round(fraction * clients), 1) clients, in id order."""
    number = max(round(fraction * clients), 1)
    drawn = generator(seed, purpose, index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def default_fraction(clients: int) -> float:
    """Default fraction: a tenth of the clients, but at least ten of them, or all of fewer than ten.

    >>> default_fraction(8), default_fraction(20), default_fraction(1000)
    (1.0, 0.5, 0.1)
    """
    return max(0.1, min(1.0, MIN_DEFAULT_CLIENTS / clients))
