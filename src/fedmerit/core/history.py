"""History: what the server remembers of earlier rounds; a ledger can rebuild it, so no checkpoint holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedmerit.core.facts import CLAIMED, LARGEST, LOSS
from fedmerit.core.types import ClientId, Cohort, Matrix

RECENT = 9
"""How many of a client's latest facts the server remembers."""


@dataclass(frozen=True, slots=True)
class PairDistances:
    """How near the updates of each two clients were in the rounds in which both took part.

    Rows and columns belong to `ids`, all clients so far. `sums` has the sum of their distances, `counts` the number of
    rounds.
    """

    ids: tuple[ClientId, ...] = ()
    sums: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    counts: Matrix = field(default_factory=lambda: np.zeros((0, 0)))

    def after(self, ids: Sequence[ClientId], distances: Matrix) -> PairDistances:
        """With one more round; distances count as the float32 numbers that a ledger keeps."""
        known = tuple(sorted({*self.ids, *ids}))
        sums, counts = np.zeros((2, len(known), len(known)))
        earlier, this_round = (self.ids, self.sums, self.counts), (ids, distances.astype(np.float32), 1.0)
        for clients, more_distance, more_rounds in (earlier, this_round):
            places = np.searchsorted(known, clients)
            sums[np.ix_(places, places)] += more_distance
            counts[np.ix_(places, places)] += more_rounds
        return PairDistances(known, sums, counts)

    def mean(self, ids: Sequence[ClientId]) -> Matrix:
        """The mean distance of each two of these clients, who have all met."""
        places = np.searchsorted(self.ids, ids)
        return np.asarray(self.sums[np.ix_(places, places)] / self.counts[np.ix_(places, places)])


@dataclass(frozen=True, slots=True)
class History:
    """What the server remembers: how often each client took part, the losses it reported, and facts that parts ask for.

    Of the facts that a recipe remembers: `first` is what the client claimed at first, `recent` what counted in the last
    `RECENT` rounds that it took part in, the newest last; both by fact and client. `pairs` is kept for parts that
    remember PAIRS.
    """

    rounds: int = 0
    participations: Mapping[ClientId, int] = field(default_factory=dict)
    losses: Mapping[ClientId, float] = field(default_factory=dict)
    first: Mapping[str, Mapping[ClientId, float]] = field(default_factory=dict)
    recent: Mapping[str, Mapping[ClientId, tuple[float, ...]]] = field(default_factory=dict)
    pairs: PairDistances = field(default_factory=PairDistances)


def remember(history: History, cohort: Cohort, names: Sequence[str] = ()) -> History:
    """The history after one more round, with the facts of these names."""
    reported = [
        (client, {name: float(column[place]) for name, column in cohort.facts.items()})
        for place, client in enumerate(cohort.ids)
    ]
    return replace(remember_facts(history, reported, names), rounds=history.rounds + 1)


def remember_facts(
    history: History, reported: Iterable[tuple[ClientId, Mapping[str, float]]], names: Sequence[str] = ()
) -> History:
    """The history after clients took part, each with these facts; in the order of the rounds.

    The first value that is remembered is the claim, later ones are what counted: a claim that was cut once must not
    look like one that changed.
    """
    counts, losses = dict(history.participations), dict(history.losses)
    first = {name: dict(history.first.get(name, {})) for name in names}
    recent = {name: dict(history.recent.get(name, {})) for name in names}
    for client, facts in reported:
        counts[client] = counts.get(client, 0) + 1
        if LOSS in facts:
            losses[client] = min(losses.get(client, 0.0) + facts[LOSS], LARGEST)
        for name in (name for name in names if name in facts):  # some are not measured in every round
            first[name].setdefault(client, facts.get(f"{CLAIMED}{name}", facts[name]))
            recent[name][client] = (*recent[name].get(client, ()), facts[name])[-RECENT:]
    return History(history.rounds, counts, losses, first, recent, history.pairs)
