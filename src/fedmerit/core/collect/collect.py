"""Collect: select the clients of a round, and decide which answers count in it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLOCK, EPOCHS, STALENESS, find_fact
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import generator
from fedmerit.core.state import View
from fedmerit.core.types import EMPTY, ClientId, Download, Note, Own, Replies

Chosen: TypeAlias = Mapping[ClientId, int | None]
"""The clients of a round in id order, with their epochs; None: the task's."""

MIN_DEFAULT_CLIENTS = 10
"""Default number of clients per round, if there are that many."""


EVERYONE_FIRST: Words = frozenset({"everyone in round 1"})
NOT_EVERYONE: Mapping[str, str] = {
    "everyone in round 1": "the selection says who takes part in each round; set recipe.memory = "
    '{name = "last-answers", everyone_first = false}'
}


class Selection(Protocol):
    """Selection of clients, derived only from the seed and the round."""

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients of 0..clients-1 that take part in round `index`."""


class Collect(Protocol):
    """Selects the clients of a round and returns the replies that count in it."""

    def select(self, view: View, own: Own) -> Chosen:
        """Return the clients of the round in id order, with their epochs."""

    def collect(
        self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View, own: Own
    ) -> tuple[Replies, Own]:
        """Return the replies, with the facts that only the server knows, and the state of pending answers."""


@part("selection", "uniform")
class Uniform:
    """Draw max(round(C * K), 1) clients uniformly without replacement [FedAvg, Alg. 1].

    fraction     C, the share of the K clients drawn per round
    overselect   draw this many times as many, of which the round needs those that answer first, see `Wait`

    >>> len(Uniform(0.5, overselect=1.3)(index=1, clients=20, seed=0))
    13
    """

    fraction: Annotated[float, Interval(gt=0, le=1), Doc("share of the clients drawn per round")] = 0.1
    overselect: Annotated[float, Interval(ge=1), Doc("draw this many times the clients that a round needs")] = 1.0

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """Return the clients in id order, with the task's epochs."""
        return dict.fromkeys(draw(self.fraction, clients, seed, "select", index, overselect=self.overselect))


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


LateAnswers: TypeAlias = Literal["drop", "use"]
"""An answer that arrives after its round is dropped, or used in the round in which it arrives."""
LATE_WHY: Mapping[str, str] = {"answers in their round": 'late answers are used; set run.wait.late = "drop"'}


def words_of_late(late: LateAnswers) -> Words:
    """Words that a collector gives if it drops late answers, or uses them."""
    return frozenset({"answers in their round"} if late == "drop" else {"fact staleness"})


@part("collect", "in-time")
class InTime:
    """Ask every selected client and use the answers of the round.

    A remote fleet may answer to an earlier round: such an answer counts with the epochs of its own round, which are
    stored until it arrives.

    selection   draws the clients of a round
    late        `use`: a remote fleet may send answers to earlier rounds; `drop`: they are dropped

    >>> InTime(Uniform(0.5)).selection
    Uniform(fraction=0.5, overselect=1.0)
    """

    selection: Annotated[Selection, Doc("draws the clients of a round")]
    late: Annotated[LateAnswers, Doc("`use`: a remote fleet may send answers to earlier rounds")] = "drop"

    why: ClassVar[Mapping[str, str]] = LATE_WHY

    @property
    def gives(self) -> Words:
        """Answers in their round if late ones are dropped, otherwise the fact `staleness`."""
        return words_of_late(self.late)

    def select(self, view: View, own: Own) -> Chosen:
        """Return the clients that `selection` draws."""
        return select(self.selection, view)

    def collect(
        self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View, own: Own
    ) -> tuple[Replies, Own]:
        """Ask all clients in one exchange."""
        fact_names = client_facts(facts)
        replies = view.host.clients.train(view.index, downloads, fact_names, view.draws.run_seed)
        return with_server_facts(replies, downloads, facts, view.index, own)


def select(selection: Selection, view: View) -> Chosen:
    """Return the clients that a selection draws, each with its epochs."""
    return selection(view.index, len(view.host.names), view.draws.run_seed)


def client_facts(facts: Sequence[str]) -> tuple[str, ...]:
    """Return the facts that clients report."""
    return tuple(name for name in facts if find_fact(name).source == "client")


def with_server_facts(
    replies: Replies, downloads: Mapping[ClientId, Download], facts: Sequence[str], index: int, own: Own
) -> tuple[Replies, Own]:
    """Add epochs, staleness and times to the replies; return them and the epochs of pending answers."""
    requested = {client: download.epochs for client, download in downloads.items()}
    late = {int(client): epochs for client, epochs in own.get("epochs", EMPTY).items()}
    server_facts = dict(replies.server_facts)
    if any(requested.values()) or late:
        epochs = requested | {client: late.get(client) for client in replies.started}
        server_facts[EPOCHS] = {client: float(epochs.get(client) or 1) for client in replies.ids}
    if replies.started or STALENESS in facts:
        server_facts[STALENESS] = {client: float(index - replies.started.get(client, index)) for client in replies.ids}
    if CLOCK in facts:
        server_facts[CLOCK] = replies.seconds
    pending = {client: epochs for client, epochs in (late | requested).items() if epochs and client not in replies.ids}
    state = {"epochs": {str(client): epochs for client, epochs in pending.items()}} if pending else EMPTY
    notes = [
        Note("stale", "updates", f"answered late: its update of round {round_} counts in this round", client)
        for client, round_ in sorted(replies.started.items())
    ]
    return replace(replies, server_facts=server_facts, notes=(*replies.notes, *notes)), state


def draw(
    fraction: float, clients: int, seed: int, purpose: str, index: int, overselect: float = 1.0
) -> tuple[ClientId, ...]:
    """Draw max(round(fraction * clients), 1) clients, or `overselect` times as many, in id order."""
    number = count_drawn(fraction, clients, overselect)
    drawn = generator(seed, purpose, index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def count_drawn(fraction: float, clients: int, overselect: float) -> int:
    """max(round(fraction * clients), 1), or `overselect` times as many, at most all."""
    return min(ceil(overselect * max(round(fraction * clients), 1) - 1e-9), clients)


def default_fraction(clients: int) -> float:
    """Default fraction: a tenth of the clients, but at least ten of them, or all of fewer than ten.

    >>> default_fraction(8), default_fraction(20), default_fraction(1000)
    (1.0, 0.5, 0.1)
    """
    return max(0.1, min(1.0, MIN_DEFAULT_CLIENTS / clients))
