"""A fleet with attackers that know the others' updates: it changes replies between training and the server's check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks import Attackers, Coalition, CollusiveAttack
from fedmerit.core.host import Fleet
from fedmerit.core.types import ClientId, Download, Replies


def attacked(fleet: Fleet, attackers: Attackers) -> Fleet:
    """The fleet, with a coalition in it where somebody colludes; other attackers act within their clients."""
    collusive = any(isinstance(coalition.attack, CollusiveAttack) for coalition in attackers.coalitions)
    return cast(Fleet, AttackedFleet(fleet, attackers)) if collusive else fleet


@dataclass(frozen=True)
class AttackedFleet:
    """Any fleet, in which coalitions answer with what their attack makes of the honest updates of the round.

    The attackers' rows are written over where they lie, in memory or in a mapped file. All else is the fleet's own:
    attackers keep personal models as they trained them, and test models honestly.
    """

    fleet: Fleet
    attackers: Attackers

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """The fleet's replies, changed."""
        return collude(self.fleet.train(index, downloads, facts, seed), self.attackers, index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)


def collude(replies: Replies, attackers: Attackers, index: int) -> Replies:
    """The replies with one vector in place of the updates of each coalition; without an honest update, as they are."""
    honest = _places(replies, attackers, None)
    vectors = [
        (_places(replies, attackers, coalition), coalition.attack.collude(replies.updates.keep(honest)))
        for coalition in attackers.coalitions
        if len(honest) and index >= coalition.from_round and isinstance(coalition.attack, CollusiveAttack)
    ]
    for places, vector in vectors:
        for place in places:
            replies.updates.row(int(place))[:] = vector
    return replace(replies, updates=replies.updates.renewed())


def _places(replies: Replies, attackers: Attackers, coalition: Coalition | None) -> NDArray[np.intp]:
    """Where in the replies the members of a coalition are; of None, the honest."""
    return np.array([place for place, client in enumerate(replies.ids) if attackers.of(client) is coalition], np.intp)
