"""Stale updates: answers that come after the round that asked for them, kept until they come and used then.

In a simulation the server's state keeps them, as named parts of it, so that a run that is resumed still has them: a
vector as long as the model for each client that is late. On Flower they are on their way as messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fedmerit.core.collect.late import Delays
from fedmerit.core.types import NOTHING, ClientId, Cohort, Download, Model, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import Note

PART = "late/"
"""Begins the names of the state's parts that hold what is under way: `late/17/update`, `late/17/fact/samples` ..."""
UPDATE, ABOUT, FACT = "update", "about", "fact"


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An answer that is under way: of a round, at the server after so many seconds more.

    `clock` is what the client took by the server's clock, `facts` what it reports.
    """

    client: ClientId
    started: int
    seconds: float
    clock: float
    update: Model
    facts: Mapping[str, float]


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
    under_way: Sequence[UnderWay] = (),
) -> tuple[Replies, tuple[UnderWay, ...]]:
    """The replies that came in a round, and what is under way after it; the late are named among the failed.

    Where late answers are dropped, nothing of theirs is used, and nothing is under way. Else who is busy with an
    earlier round is not asked, and its answer counts in the round in which it comes.
    """
    if delays is None:
        return clients.train(index, downloads, facts, seed), ()
    busy = {one.client: f"late: still busy with round {one.started}" for one in under_way}
    asked = {client: download for client, download in downloads.items() if client not in busy}
    late = delays.late(index, sorted(asked), seed)
    away = {client: reason for client, reason in busy.items() if client in downloads} | late
    if delays.wait.late == "drop":
        in_time = {client: download for client, download in asked.items() if client not in late}
        replies = clients.train(index, in_time, facts, seed)
        return replace(replies, failed={**replies.failed, **away}) if away else replies, ()
    replies = clients.train(index, asked, facts, seed)
    arrivals = delays.arrivals(index, sorted(asked), seed)
    ends = delays.ends(list(arrivals.values()))
    now_late = tuple(
        UnderWay(
            client,
            index,
            max(arrivals[client] - ends, 0.0),
            replies.seconds.get(client, 0.0),
            np.array(replies.updates.row(place)),
            {name: float(value) for name, value in told.items() if isinstance(value, int | float)},
        )
        for place, (client, told) in enumerate(zip(replies.ids, replies.facts, strict=True))
        if client in late
    )
    came = [one for one in under_way if one.seconds <= ends]
    waiting = tuple(replace(one, seconds=one.seconds - ends) for one in under_way if one.seconds > ends)
    replies = _without(replies, {one.client for one in now_late})
    failed = {**replies.failed, **{client: why for client, why in away.items() if client not in replies.failed}}
    failed = {client: why for client, why in failed.items() if client not in {one.client for one in came}}
    return add_stale(replace(replies, failed=failed), came), (*waiting, *now_late)


def _without(replies: Replies, clients: set[ClientId]) -> Replies:
    """The replies of the others."""
    places = [place for place, client in enumerate(replies.ids) if client not in clients]
    kept = np.array(places, dtype=np.intp)
    return replace(
        replies,
        ids=tuple(replies.ids[place] for place in places),
        updates=replies.updates.keep(kept),
        facts=tuple(replies.facts[place] for place in places),
        bytes_up=len(places) * replies.updates.length * 4,
    )


def add_stale(replies: Replies, came: Sequence[UnderWay]) -> Replies:
    """The replies with those that came late among them, in client order; the rows are copied where there are such."""
    if not came:
        return replies
    rows = {client: replies.updates.row(place) for place, client in enumerate(replies.ids)}
    facts: dict[ClientId, Mapping[str, float]] = dict(zip(replies.ids, replies.facts, strict=True))
    for one in came:
        rows[one.client], facts[one.client] = one.update, one.facts
    ids = tuple(sorted(rows))
    updates = Updates(np.stack([rows[client] for client in ids]))
    return replace(
        replies,
        ids=ids,
        updates=updates,
        facts=tuple(facts[client] for client in ids),
        seconds={**replies.seconds, **{one.client: one.clock for one in came}},
        bytes_up=updates.nbytes,
        started={one.client: one.started for one in came},
    )


def stale_notes(cohort: Cohort, started: Mapping[ClientId, int]) -> tuple[Note, ...]:
    """For the ledger: whose update of an earlier round counted in this one."""
    return tuple(
        Note("stale", "updates", f"answered after its round: its update of round {started[client]} counts here", client)
        for client in cohort.ids
        if client in started
    )


def as_parts(under_way: Sequence[UnderWay]) -> dict[str, Model]:
    """What is under way as parts of the state; numbers in double precision take two places each."""
    parts = {}
    for one in under_way:
        name = f"{PART}{one.client}/"
        parts[name + UPDATE] = one.update
        parts[name + ABOUT] = _packed(one.started, one.seconds, one.clock)
        parts |= {f"{name}{FACT}/{fact}": _packed(value) for fact, value in one.facts.items()}
    return parts


def from_parts(parts: Mapping[str, Model]) -> tuple[dict[str, Model], tuple[UnderWay, ...]]:
    """The other parts of a state, and what is under way, in client order.

    >>> one = UnderWay(17, 3, 0.1, 1e-9, np.ones(2, np.float32), {"samples": 4.0})
    >>> others, (again,) = from_parts(as_parts([one]))
    >>> again.client, again.started, again.seconds, again.clock, again.update.tolist(), dict(again.facts), others
    (17, 3, 0.1, 1e-09, [1.0, 1.0], {'samples': 4.0}, {})
    """
    others = {name: part for name, part in parts.items() if not name.startswith(PART)}
    clients = sorted({int(name.split("/")[1]) for name in parts if name.startswith(PART)})
    under_way = []
    for client in clients:
        name = f"{PART}{client}/"
        started, seconds, clock = _unpacked(parts[name + ABOUT])
        told = f"{name}{FACT}/"
        facts = {key.removeprefix(told): _unpacked(part)[0] for key, part in parts.items() if key.startswith(told)}
        under_way.append(UnderWay(client, int(started), seconds, clock, parts[name + UPDATE], facts))
    return others, tuple(under_way)


def _packed(*numbers: float) -> Model:
    return np.array(numbers, np.float64).view(np.float32)


def _unpacked(part: Model) -> list[float]:
    return [float(number) for number in np.ascontiguousarray(part).view(np.float64)]


def rounds_late(
    cohort_ids: Sequence[ClientId], index: int, started: Mapping[ClientId, int] = NOTHING
) -> dict[int, float]:
    """How many rounds old each client's update is: 0 where it is of this one."""
    return {client: float(index - started.get(client, index)) for client in cohort_ids}
