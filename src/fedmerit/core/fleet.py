"""Fleet: what a round asks of the clients, wherever they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fedmerit.core.objectives import Objective, Predictions
from fedmerit.core.rewards import Acceptance
from fedmerit.core.types import ClientId, Download, Evaluation, Model, Replies, SparseUpdate, SplitName, Verdict


class Fleet(Protocol):
    """The clients. A client that fails is named in the replies; it never ends the round."""

    def names(self) -> Sequence[str]:
        """What people call the clients; client i is the i-th."""

    def start(self, seed: int) -> Model:
        """The model before the first round."""

    def train(self, index: int, parcels: Mapping[ClientId, Download], needs: Sequence[str], seed: int) -> Replies:
        """Deliver a parcel to each client, let it train, and collect updates and the facts asked for."""

    def layers(self) -> Sequence[int]:
        """The lengths of the model's layers, in its order."""

    def reward(
        self, index: int, parts: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Send clients parts to add to their own models; each tests its own on its validation rows and answers."""

    def has_server_rows(self) -> bool:
        """Whether the server has rows of its own."""

    def validate(self, models: Iterable[Model]) -> Predictions:
        """What these models say of the server's rows."""

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, own: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Objectives of the model, or of each client's own, on each client's test rows; NaN where unknown."""

    def save(self, run: Path, round: int) -> None:
        """Before a round is booked: put into the run's folder what clients kept in it, where that is ours to do."""

    def load(self, run: Path, round: int) -> bool:
        """On a resume: give clients what they had after a round; False where that cannot be had."""

    def evaluate(
        self, models: Sequence[Model], on: SplitName = "test", clients: Sequence[ClientId] | None = None
    ) -> Sequence[Evaluation]:
        """Test one or several models on the rows of every client, or of some, in one exchange."""

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Each client tests its own model on its rows; who has none, this one."""
