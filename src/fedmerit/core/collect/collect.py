"""Collect: who takes part in a round, and which answers count in it."""

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
"""The clients of a round in id order, with their epochs; None: as the task says."""

MIN_DEFAULT_CLIENTS = 10
"""Clients that are drawn for a round by default, where there are as many."""


class Selection(Protocol):
    """A choice of clients, derived from the seed and the round only."""

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """The clients of 0..clients-1 that take part in round `index`."""


class Collect(Protocol):
    """Selects the clients of a round and yields the replies that count in it."""

    def select(self, view: View, own: Own) -> Chosen:
        """The clients of the round in id order, and the work of each."""

    def collect(
        self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View, own: Own
    ) -> tuple[Replies, Own]:
        """The replies, with the facts that only the server knows, and what is pending after the round."""


@part("selection", "uniform")
class Uniform:
    """max(round(C * K), 1) clients, uniformly without replacement [FedAvg, Alg. 1].

    With `overselect` that many times as many, of which the round needs those that answer first, see `Wait`.

    >>> len(Uniform(0.5, overselect=1.3)(index=1, clients=20, seed=0))
    13
    """

    fraction: Annotated[float, Interval(gt=0, le=1), Doc("share of the clients drawn per round")] = 0.1
    overselect: Annotated[float, Interval(ge=1), Doc("how many times the clients that a round needs are asked")] = 1.0

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """In id order, with the task's epochs."""
        return dict.fromkeys(draw(self.fraction, clients, seed, "select", index, overselect=self.overselect))


@part("selection", "poisson")
class Poisson:
    """Each client with probability q, independently: the sampling that amplifies privacy.

    The number of clients differs from round to round, and may be 0. Where the sample must stay `secret` it does not
    derive from the run's seed.

    >>> Poisson(1.0)(index=1, clients=3, seed=0)
    {0: None, 1: None, 2: None}
    """

    fraction: Annotated[float, Interval(gt=0, le=1), Doc("probability that a client takes part")] = 0.1
    secret: Annotated[bool, Doc("draw from the operating system in place of the run's seed")] = False

    def __call__(self, index: int, clients: int, seed: int) -> Chosen:
        """In id order, with the task's epochs."""
        drawn_from = secrets.randbits(63) if self.secret else seed
        taken = generator(drawn_from, "poisson", index).random(clients) < self.fraction
        return dict.fromkeys(int(client) for client in np.flatnonzero(taken))


LateAnswers: TypeAlias = Literal["drop", "use"]
"""What becomes of an answer that comes after its round: it is dropped, or used in the round in which it comes."""
LATE_WHY: Mapping[str, str] = {"answers in their round": 'late answers are used; set run.wait.late = "drop"'}


def words_of_late(late: LateAnswers) -> Words:
    """What a collector gives that drops late answers, or uses them."""
    return frozenset({"answers in their round"} if late == "drop" else {"fact staleness"})


@part("collect", "in-time")
class InTime:
    """Every selected client is asked, and the answers of the round count.

    A fleet that is elsewhere may answer to an earlier round: such an answer counts with the epochs of its own round,
    which are kept until it comes.

    >>> InTime(Uniform(0.5)).selection
    Uniform(fraction=0.5, overselect=1.0)
    """

    selection: Annotated[Selection, Doc("who takes part")]
    late: Annotated[LateAnswers, Doc("`use`: a fleet that is elsewhere may send answers to earlier rounds")] = "drop"

    why: ClassVar[Mapping[str, str]] = LATE_WHY

    @property
    def gives(self) -> Words:
        """Answers in their round where late ones are dropped, else the fact `staleness`."""
        return words_of_late(self.late)

    def select(self, view: View, own: Own) -> Chosen:
        """As the selection says."""
        return select(self.selection, view)

    def collect(
        self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View, own: Own
    ) -> tuple[Replies, Own]:
        """One exchange with all of them."""
        asked = client_facts(facts)
        replies = view.host.clients.train(view.index, downloads, asked, view.draws.run_seed)
        return with_server_facts(replies, downloads, facts, view.index, own)


def select(selection: Selection, view: View) -> Chosen:
    """The clients that a selection draws, each with its epochs."""
    return selection(view.index, len(view.host.names), view.draws.run_seed)


def client_facts(facts: Sequence[str]) -> tuple[str, ...]:
    """Those facts that clients are asked for."""
    return tuple(name for name in facts if find_fact(name).source == "client")


def with_server_facts(
    replies: Replies, downloads: Mapping[ClientId, Download], facts: Sequence[str], index: int, own: Own
) -> tuple[Replies, Own]:
    """The replies with epochs, staleness and times that the server knows; and the epochs of answers yet to come."""
    asked = {client: download.epochs for client, download in downloads.items()}
    late = {int(client): epochs for client, epochs in own.get("epochs", EMPTY).items()}
    known = dict(replies.server_facts)
    if any(asked.values()) or late:
        epochs = asked | {client: late.get(client) for client in replies.started}
        known[EPOCHS] = {client: float(epochs.get(client) or 1) for client in replies.ids}
    if replies.started or STALENESS in facts:
        known[STALENESS] = {client: float(index - replies.started.get(client, index)) for client in replies.ids}
    if CLOCK in facts:
        known[CLOCK] = replies.seconds
    pending = {client: epochs for client, epochs in (late | asked).items() if epochs and client not in replies.ids}
    kept = {"epochs": {str(client): epochs for client, epochs in pending.items()}} if pending else EMPTY
    notes = [
        Note("stale", "updates", f"answered after its round: its update of round {round_} counts here", client)
        for client, round_ in sorted(replies.started.items())
    ]
    return replace(replies, server_facts=known, notes=(*replies.notes, *notes)), kept


def draw(
    fraction: float, clients: int, seed: int, purpose: str, index: int, overselect: float = 1.0
) -> tuple[ClientId, ...]:
    """max(round(fraction * clients), 1) of the clients, or `overselect` times as many, in id order."""
    number = count_drawn(fraction, clients, overselect)
    drawn = generator(seed, purpose, index).choice(clients, size=number, replace=False)
    return tuple(sorted(int(client) for client in drawn))


def count_drawn(fraction: float, clients: int, overselect: float) -> int:
    """max(round(fraction * clients), 1), or that many times as many, at most all."""
    return min(ceil(overselect * max(round(fraction * clients), 1) - 1e-9), clients)


def default_fraction(clients: int) -> float:
    """A tenth of the clients, but at least ten of them, or all: of eight hospitals all eight take part.

    >>> default_fraction(8), default_fraction(20), default_fraction(1000)
    (1.0, 0.5, 0.1)
    """
    return max(0.1, min(1.0, MIN_DEFAULT_CLIENTS / clients))
