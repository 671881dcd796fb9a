"""The account of a private run: releases booked before anybody sees them, and what they cost together."""

from __future__ import annotations

from dataclasses import dataclass

from fedmerit.config.account import epsilon_of_releases
from fedmerit.core.release import Release
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Account:
    """The releases of a run, in its ledger: a round that is repeated after a kill is another release.

    So epsilon counts every noisy model that may have left the server, never goes down, and does not depend on
    checkpoints.
    """

    ledger: Ledger
    privacy: PrivateSum

    def book(self, release: Release) -> None:
        """Write a release to the ledger, which is on the disk when this returns."""
        self.ledger.book(release)

    def epsilon(self) -> float:
        """What all booked releases cost."""
        return epsilon_of_releases(self.privacy, self.ledger.releases())
