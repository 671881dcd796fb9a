"""A fleet with attackers that know the others' updates: it changes replies between training and the server's check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks import Attackers, Coalition, CollusiveAttack
from fedmerit.core.host import Fleet, ServerSetup
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.objectives import Objective
from fedmerit.core.server.centring import Sums
from fedmerit.core.types import (
    AskedRows,
    ClientId,
    Download,
    Evaluation,
    Model,
    Replies,
    SparseUpdate,
    SplitName,
    Verdict,
)


def attacked(fleet: Fleet, attackers: Attackers) -> Fleet:
    """The fleet, with a coalition in it where somebody colludes; other attackers act within their clients."""
    collusive = any(isinstance(coalition.attack, CollusiveAttack) for coalition in attackers.coalitions)
    return AttackedFleet(fleet, attackers) if collusive else fleet


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

    @property
    def server(self) -> ServerSetup:
        """The fleet's."""
        return self.fleet.server

    def judges(self) -> Sequence[ClientId]:
        """The fleet's."""
        return self.fleet.judges()

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """As the fleet does."""
        return self.fleet.evaluate(models, on, clients, losses=losses)

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """As the fleet does."""
        return self.fleet.send_rewards(index, rewards, acceptance)

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """As the fleet does."""
        return self.fleet.evaluate_personal(model, on)

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, personal: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """As the fleet does."""
        return self.fleet.audit(model, objectives, personal=personal)

    def sum_features(self) -> Sums:
        """As the fleet does."""
        return self.fleet.sum_features()

    def save(self, run: Path, index: int) -> None:
        """As the fleet does."""
        self.fleet.save(run, index)

    def load(self, run: Path, index: int) -> bool:
        """As the fleet does."""
        return self.fleet.load(run, index)


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
