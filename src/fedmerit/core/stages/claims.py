"""Claims: what of a client's word counts, given what the others say and what it said before.

A fact within its range may still be a lie. `Claims` bounds each claim by the round's median and by the client's own
past, holds facts of its rows to what they were at first sight, and gives the cap an anchor that grows with neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedmerit.core.facts import ANCHOR, CLAIMED, SAMPLES, SECONDS, Fact, find_fact
from fedmerit.core.types import NOTHING, ClientId, Cohort, History, Vector
from fedmerit.core.weights.weigh import Note
from fedmerit.errors import ConfigError

ANCHOR_MEDIANS = 2.0
"""No anchor lies above this many medians of the round's training rows."""
LESS_EARNS_MORE = (SECONDS,)
"""Facts that a liar makes small: bounded from below too."""


@dataclass(frozen=True, slots=True)
class Claims:
    """How far a client's word is taken, beyond the facts' ranges; a recipe without it takes facts as told.

    k           a claim counts as at most k times the median of the round's claims, and as at most k times the median
                of what counted for the client lately, but never as less than the round's median for that reason
    change      facts of a client's rows (samples, labels ...) do not change: one that differs from the first claim by
                more than this factor counts as the first
    enrolled    pairs (client, training rows): what clients are known to hold; stands for their first claim of samples
    anchor      with a `cap`: a weight is at most twice the client's share of the anchors, an anchor being the training
                rows that count, at most twice their median

    >>> Claims(k=4, enrolled=((0, 120),)).change
    1.2
    """

    k: float = 3.0
    change: float = 1.2
    enrolled: tuple[tuple[ClientId, float], ...] = ()
    anchor: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.k < np.inf:
            raise ConfigError(f"claims.k is how many medians a claim may be, 1 or more; got {self.k}")
        if not 1 <= self.change < np.inf:
            raise ConfigError(f"claims.change is the factor by which a fact may differ, 1 or more; got {self.change}")
        if not all(client >= 0 and 0 < rows < np.inf for client, rows in self.enrolled):
            raise ConfigError(
                f"claims.enrolled has pairs of a client's number and its training rows; got {list(self.enrolled)}"
            )


def bound_claims(
    claims: Claims | None, cohort: Cohort, history: History, *, capped: bool
) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the facts that count, and a note on each claim that counts as something else.

    Where any claim of a fact was cut, `claimed:FACT` keeps what was said. With `capped` weights the fact `anchor` is
    added, which their bound goes by.
    """
    if claims is None or not cohort.ids:
        return cohort, ()
    facts, notes = dict(cohort.facts), list[Note]()
    for fact in (find_fact(name) for name in cohort.facts):
        if fact.source == "server":
            continue
        claimed = cohort.facts[fact.name]
        pinned, changed = _pinned(claims, fact, claimed, cohort.ids, history)
        counted = _bounded(claims, fact, pinned, cohort.ids, history)
        if (counted != claimed).any():
            facts[fact.name], facts[f"{CLAIMED}{fact.name}"] = counted, claimed
        notes += changed + _cut(fact, pinned, counted, cohort.ids)
    if capped and claims.anchor:
        facts[ANCHOR] = np.minimum(facts[SAMPLES], ANCHOR_MEDIANS * np.median(facts[SAMPLES]))
    return replace(cohort, facts=facts), tuple(notes)


def _pinned(
    claims: Claims, fact: Fact, claimed: Vector, ids: tuple[ClientId, ...], history: History
) -> tuple[Vector, list[Note]]:
    """Facts of rows as they were at first sight, or as enrolled, where the claim differs by more than `change`."""
    if fact.measure is None:
        return claimed, []
    first: Mapping[ClientId, float] = history.first.get(fact.name, NOTHING)
    if fact.name == SAMPLES:
        first = {**first, **dict(claims.enrolled)}
    counted, notes = claimed.copy(), []
    for place, client in enumerate(ids):
        before, now = first.get(client), float(claimed[place])
        if before is None or before / claims.change <= now <= before * claims.change:
            continue
        counted[place] = before
        text = f"claims {fact.name} {now:g} after {before:g}, which counts: facts of its rows do not change"
        notes.append(Note("claim-changed", f"{client}: {fact.name}", text, client))
    return counted, notes


def _bounded(claims: Claims, fact: Fact, claimed: Vector, ids: tuple[ClientId, ...], history: History) -> Vector:
    """Claims within k medians of the round, and of the client's own past; a median of 0 bounds nothing."""
    median = float(np.median(claimed))
    if median <= 0:
        return claimed
    recent = history.recent.get(fact.name, NOTHING)
    own = np.array([np.median(recent[client]) if client in recent else median for client in ids])
    high = np.minimum(claims.k * median, np.maximum(claims.k * own, median))
    counted = np.minimum(claimed, high)
    if fact.name in LESS_EARNS_MORE:
        counted = np.maximum(counted, np.maximum(median / claims.k, np.minimum(own / claims.k, median)))
    return np.asarray(counted)


def _cut(fact: Fact, claimed: Vector, counted: Vector, ids: tuple[ClientId, ...]) -> list[Note]:
    text = "claims {name} {said:g}, which counts as {counted:g}: the bound by the round's median and its own past"
    return [
        Note(
            "claim-cut",
            f"{ids[place]}: {fact.name}",
            text.format(name=fact.name, said=claimed[place], counted=counted[place]),
            ids[place],
        )
        for place in np.flatnonzero(claimed != counted)
    ]
