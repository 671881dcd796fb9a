"""Check: the door of a round; nothing that came from a client is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.criteria.table import Criterion
from fedmerit.core.facts import SAMPLES, SECONDS, Fact, find_fact
from fedmerit.core.showing import printable
from fedmerit.core.types import NOTHING, ClientId, Cohort, History, Replies, Vector
from fedmerit.core.weights.weigh import Note

Known: TypeAlias = Mapping[str, Mapping[ClientId, float]]
"""Facts of the server's own, by name and client; they need no check."""

SHORTEST_TRIP = 1e-3
"""Seconds that a model and an update are on their way at least."""

Limits: TypeAlias = Mapping[str, float]
"""The most that a client may claim, by fact: what the federation knows beyond the facts' own ranges."""


def check(
    index: int,
    replies: Replies,
    required_facts: Sequence[str],
    length: int,
    *,
    known: Known = NOTHING,
    limits: Limits = NOTHING,
) -> tuple[Cohort, dict[ClientId, str]]:
    """The clients that can be scored, and for every other one the reason why it is left out of the round.

    An update must be finite and as long as the model (`length`), vectors beside it finite; each fact in its range.
    """
    left_out = {client: printable(reason) for client, reason in replies.failed.items()}
    wanted = [fact for fact in map(find_fact, required_facts) if fact.source == "client"]
    for client, facts, norm in zip(replies.ids, replies.facts, replies.updates.norms, strict=True):
        reason = _wrong_update(norm, replies.updates.length, length) or _wrong_facts(facts, wanted, limits)
        if reason:
            left_out[client] = reason
    for name, rows in replies.extras.items():
        for client, norm in zip(replies.ids, rows.norms, strict=True):
            if not math.isfinite(norm):
                left_out.setdefault(client, f"{name} holds NaN, infinity or values too large to square")
    places = np.array([place for place, client in enumerate(replies.ids) if client not in left_out], dtype=np.intp)
    kept = [replies.facts[place] for place in places]
    columns = {fact.name: np.array([facts[fact.name] for facts in kept], dtype=np.float64) for fact in wanted}
    ids = tuple(replies.ids[place] for place in places)
    columns |= {name: np.array([values[client] for client in ids], np.float64) for name, values in known.items()}
    extras = {name: rows.keep(places) for name, rows in replies.extras.items()}
    return Cohort(index, ids, replies.updates.keep(places), columns, extras), left_out


def measure_links(replies: Replies) -> dict[ClientId, float]:
    """Megabytes per second: an update there and a model back, over the time of the exchange less the training.

    How long it trained is the client's claim; who says more than the exchange took gains at most the shortest time.
    """
    links = {}
    for client, facts in zip(replies.ids, replies.facts, strict=True):
        took, trained = replies.seconds.get(client, 0.0), facts.get(SECONDS) if isinstance(facts, Mapping) else None
        spent = float(trained) if isinstance(trained, int | float) and trained > 0 else 0.0
        links[client] = 2 * 4 * replies.updates.length / 1e6 / max(took - spent, SHORTEST_TRIP)
    return links


def check_criteria(
    criteria: Sequence[Criterion], cohort: Cohort, history: History
) -> tuple[Cohort, dict[ClientId, str]]:
    """The clients that every criterion has a number for; who makes one overflow is left out, and the round goes on.

    A criterion that has a number for none of several clients is a mistake of its own, which weighing them tells.
    """
    left_out: dict[ClientId, str] = {}
    for criterion in criteria if cohort.ids else ():
        values = _values(criterion, cohort, history)
        wrong = ~(np.isfinite(values) & (values >= 0))
        if values.shape != (len(cohort.ids),) or (wrong.all() and len(wrong) != 1):
            continue
        for place in np.flatnonzero(wrong):
            told = f"criterion {criterion.name} has no number >= 0 for it: {values[place]:g}"
            left_out.setdefault(cohort.ids[place], printable(told))
    if not left_out:
        return cohort, left_out
    places = [place for place, client in enumerate(cohort.ids) if client not in left_out]
    return cohort.keep(np.array(places, dtype=np.intp)), left_out


def _values(criterion: Criterion, cohort: Cohort, history: History) -> Vector:
    """What a criterion says; where its arithmetic gives up on all of them, what it says of each alone."""
    with np.errstate(all="ignore"):
        try:
            return np.asarray(criterion(cohort, history), dtype=np.float64)
        except ArithmeticError:
            if len(cohort.ids) == 1:
                return np.full(1, np.nan)
            places = np.arange(len(cohort.ids))
            return np.concatenate([_values(criterion, cohort.keep(places[[at]]), history) for at in places])


def nobody_trained(cohort: Cohort, left_out: Mapping[ClientId, str]) -> tuple[Note, ...]:
    """The note on a round in which all who came were left out; none on any other.

    >>> from fedmerit.core.updates import Updates
    >>> nobody = Cohort(1, (), Updates(np.empty((0, 2), np.float32)), {})
    >>> nobody_trained(nobody, {4: "no training samples"})[0].text
    'all 1 clients of the round were left out and nothing was learned; client 4: no training samples'
    """
    if cohort.ids or not left_out:
        return ()
    text = f"all {len(left_out)} clients of the round were left out and nothing was learned; {first_reason(left_out)}"
    return (Note("nobody", "all", text),)


def first_reason(left_out: Mapping[ClientId, str]) -> str:
    """The first client that was left out, and why."""
    client = min(left_out)
    return f"client {client}: {left_out[client]}"


def _wrong_update(norm: float, received: int, length: int) -> str | None:
    if received != length:
        return f"update has {received} values, the model {length}"
    return None if math.isfinite(norm) else "update holds NaN, infinity or values too large to square"


def _wrong_facts(facts: Any, wanted: Sequence[Fact], limits: Limits) -> str | None:
    if not isinstance(facts, Mapping):
        return f"facts are missing: {facts!r:.80}"
    for fact in wanted:
        reason = fact.wrong(facts.get(fact.name), limits.get(fact.name))
        if reason:
            return reason
    return "no training samples" if facts[SAMPLES] < 1 else None
