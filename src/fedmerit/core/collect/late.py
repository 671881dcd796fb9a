"""Late answers: how long a round waits, simulated delays, and the value of a late update.

In a simulation late updates are stored in the state until they arrive, so that a resumed run has them: one vector as
long as the model for each late client. On Flower they are messages in transit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.collect.collect import (
    LATE_WHY,
    Chosen,
    LateAnswers,
    Selection,
    client_facts,
    select,
    with_server_facts,
    words_of_late,
)
from fedmerit.core.facts import STALENESS
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.seeds import generator
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Download, Family, Model, Own, Replies, Vector
from fedmerit.core.updates import Updates

ROUNDING = 1e-9
"""Tolerance for products such as 0.7 * 10, which is slightly more than 7."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for all clients that a round needs, but after `seconds` only for this minimum fraction of them.

    A round needs all clients that it asked. With `overselect` it asked that many times as many as it needs
    [Bonawitz 2019], and continues as soon as the needed number has answered.

    >>> wait = Wait(min_fraction=0.8, seconds=60)
    >>> wait.is_over(8, 10, 59), wait.is_over(8, 10, 60), wait.is_over(7, 10, 600)
    (False, True, False)
    >>> Wait(min_fraction=0.8, seconds=60, overselect=1.3).is_over(10, 13, 5)
    True
    """

    min_fraction: float
    seconds: float
    overselect: float = 1.0
    late: LateAnswers = "drop"

    def needed(self, clients: int) -> int:
        """Number of answers that end a round at once: all, or with over-selection the number that it needs."""
        return max(1, floor(clients / self.overselect + ROUNDING))

    def enough(self, clients: int) -> int:
        """Number of answers that suffice after the deadline: at least one."""
        return max(1, ceil(self.min_fraction * self.needed(clients) - ROUNDING))

    def is_over(self, answered: int, clients: int, seconds: float) -> bool:
        """Whether a round continues without the missing answers."""
        whole = self.overselect > 1 and answered >= self.needed(clients)
        return whole or (seconds >= self.seconds and answered >= self.enough(clients))

    def ends(self, arrivals: Sequence[float]) -> float:
        """Return when a round ends whose clients answer at these times."""
        if not arrivals:
            return 0.0
        in_order = sorted(arrivals)
        whole = in_order[self.needed(len(in_order)) - 1]
        return whole if whole <= self.seconds else max(self.seconds, in_order[self.enough(len(in_order)) - 1])


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """An answer in transit to an earlier round, which arrives after this many more seconds.

    clock   duration of the client's work by the server's clock
    epochs  requested epochs; None: the task's
    """

    client: ClientId
    started: int
    seconds: float
    clock: float
    update: Model
    facts: Mapping[str, float]
    epochs: int | None = None

    def as_own(self) -> Own:
        """Pack the answer into a part's state."""
        numbers = {"started": self.started, "seconds": self.seconds, "clock": self.clock, "epochs": self.epochs or 0}
        return {"update": self.update, **numbers, "facts": dict(self.facts)}

    @classmethod
    def from_own(cls, client: str, own: Own) -> PendingUpdate:
        """Unpack an answer from a state."""
        started, seconds, clock, epochs = (own[name] for name in ("started", "seconds", "clock", "epochs"))
        return cls(int(client), started, seconds, clock, own["update"], own.get("facts", EMPTY), epochs or None)


@part("collect", "delayed")
class Delayed:
    """Simulate late clients: with probability `delayed` a client's answer is delayed by Exp(1) times `seconds`.

    Each draw derives from the run's seed, the round and the client. A late answer is dropped, or it counts in the round
    in which it arrives; until then its client is busy and is not asked again.

    >>> from fedmerit.core.collect.collect import Uniform
    >>> sorted(Delayed(Uniform(), Wait(0.5, 10.0), delayed=0.5, seconds=100.0).late(1, range(6), seed=0))
    [3, 4, 5]
    """

    selection: Annotated[Selection, Doc("draws the clients of a round")]
    wait: Annotated[Wait, Doc("how long a round waits")]
    delayed: Annotated[float, Interval(gt=0, le=1), Doc("probability that a client is delayed in a round")] = 0.2
    seconds: Annotated[float, Interval(gt=0), Doc("the mean delay")] = 120.0
    base_seconds: Annotated[float, Interval(ge=0), Doc("answer time of a client that is not delayed")] = 0.0

    why: ClassVar[Mapping[str, str]] = LATE_WHY

    @property
    def gives(self) -> Words:
        """Answers in their round if late ones are dropped, otherwise the fact `staleness`."""
        return words_of_late(self.wait.late)

    def select(self, view: View, own: Own) -> Chosen:
        """Return the clients that `selection` draws; busy clients among them are not asked."""
        return select(self.selection, view)

    def collect(
        self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View, own: Own
    ) -> tuple[Replies, Own]:
        """Return the replies of this round and earlier ones that arrived now; late clients count as failed."""
        index, seed, train = view.index, view.draws.run_seed, view.host.clients.train
        waiting = [PendingUpdate.from_own(client, state) for client, state in own.get("pending", EMPTY).items()]
        waiting.sort(key=lambda one: one.client)
        busy = {one.client: f"late: still busy with round {one.started}" for one in waiting}
        requests = {client: download for client, download in downloads.items() if client not in busy}
        late = self.late(index, sorted(requests), seed)
        away = {client: reason for client, reason in busy.items() if client in downloads} | late
        if self.wait.late == "drop":
            in_time = {client: download for client, download in requests.items() if client not in late}
            replies = train(index, in_time, client_facts(facts), seed)
            replies = replace(replies, failed={**replies.failed, **away}) if away else replies
            return with_server_facts(replies, downloads, facts, index, EMPTY)[0], EMPTY
        replies = train(index, requests, client_facts(facts), seed)
        arrivals = self.arrivals(index, sorted(requests), seed)
        ends = self.ends(list(arrivals.values()))
        now_late = [
            PendingUpdate(
                client,
                index,
                max(arrivals[client] - ends, 0.0),
                replies.seconds.get(client, 0.0),
                np.array(replies.updates.row(place)),
                {name: float(value) for name, value in reported.items() if isinstance(value, int | float)},
                requests[client].epochs,
            )
            for place, (client, reported) in enumerate(zip(replies.ids, replies.facts, strict=True))
            if client in late
        ]
        arrived = [one for one in waiting if one.seconds <= ends]
        still = [replace(one, seconds=one.seconds - ends) for one in waiting if one.seconds > ends]
        replies = without_clients(replies, {one.client for one in now_late})
        failed = {**replies.failed, **{client: why for client, why in away.items() if client not in replies.failed}}
        failed = {client: why for client, why in failed.items() if client not in {one.client for one in arrived}}
        replies = add_late(replace(replies, failed=failed), arrived)
        epochs = {"epochs": {str(one.client): one.epochs for one in arrived if one.epochs}}
        replies, _ = with_server_facts(replies, downloads, facts, index, epochs)
        pending = {str(one.client): one.as_own() for one in (*still, *now_late)}
        return replies, {"pending": pending} if pending else EMPTY

    def arrivals(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, float]:
        """Return when each client answers; a client that is not delayed, after `base_seconds`."""
        times = {}
        for client in clients:
            random = generator(seed, "delay", index, client)
            delay = float(random.exponential(self.seconds)) if random.random() < self.delayed else 0.0
            times[client] = self.base_seconds + delay
        return times

    def ends(self, arrivals: Sequence[float]) -> float:
        """Return when a round ends; one without any client to ask lasts until its deadline."""
        return self.wait.ends(arrivals) if arrivals else self.wait.seconds

    def late(self, index: int, clients: Sequence[ClientId], seed: int) -> dict[ClientId, str]:
        """Return the clients that answer after the round has ended, with the reason for the ledger."""
        arrivals = self.arrivals(index, clients, seed)
        ends = self.ends(list(arrivals.values()))
        late = {
            client: f"late: it would have answered after {time:.1f} s, but the round ended after {ends:.1f} s"
            for client, time in arrivals.items()
            if time > ends
        }
        needed = self.wait.needed(len(arrivals))
        if len(arrivals) - len(late) > needed:  # several clients answer at the same time as the last needed one
            order = sorted(
                arrivals, key=lambda client: (arrivals[client], generator(seed, "order", index, client).random())
            )
            reason = f"not needed: {needed} of the {len(arrivals)} clients asked had answered after {ends:.1f} s"
            late |= {client: reason for client in order[needed:] if client not in late}
        return late


def without_clients(replies: Replies, clients: set[ClientId]) -> Replies:
    """Return the replies without these clients."""
    places = [place for place, client in enumerate(replies.ids) if client not in clients]
    indices = np.array(places, dtype=np.intp)
    return replace(
        replies,
        ids=tuple(replies.ids[place] for place in places),
        updates=replies.updates.keep(indices),
        facts=tuple(replies.facts[place] for place in places),
        bytes_up=len(places) * replies.updates.length * 4,
    )


def add_late(replies: Replies, arrived: Sequence[PendingUpdate]) -> Replies:
    """Add late replies, in client order; the rows are copied if there are any."""
    if not arrived:
        return replies
    rows = {client: replies.updates.row(place) for place, client in enumerate(replies.ids)}
    facts: dict[ClientId, Mapping[str, float]] = dict(zip(replies.ids, replies.facts, strict=True))
    for one in arrived:
        rows[one.client], facts[one.client] = one.update, one.facts
    ids = tuple(sorted(rows))
    updates = Updates(np.stack([rows[client] for client in ids]))
    return replace(
        replies,
        ids=ids,
        updates=updates,
        facts=tuple(facts[client] for client in ids),
        seconds={**replies.seconds, **{one.client: one.clock for one in arrived}},
        bytes_up=updates.nbytes,
        started={one.client: one.started for one in arrived},
    )


@part("criterion", "Staleness")
class Staleness:
    """Staleness discount 1 / sqrt(1 + s), s the number of rounds that the update is late [Xie 2019].

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(5, (0, 1), Updates(np.ones((2, 1), np.float32)), {"staleness": np.array([0.0, 3.0])})
    >>> Staleness()(cohort, History()).tolist()
    [1.0, 0.5]
    """

    name: ClassVar[str] = "Staleness"
    family: ClassVar[Family] = Family.TRUST
    required_facts: ClassVar[tuple[str, ...]] = (STALENESS,)
    degree: ClassVar[bool] = True
    about: ClassVar[str] = "freshness: 1 / sqrt(1 + rounds that the update is late), see run.wait.late; 1 if in time"
    why: ClassVar[Mapping[str, str]] = {"fact staleness": 'late answers are dropped; set run.wait.late = "use"'}

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Discount late updates."""
        return np.asarray((1.0 + cohort.facts[STALENESS]) ** -0.5)
