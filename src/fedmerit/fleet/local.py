"""The local fleet: clients simulated on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedmerit.fleet.client import answer, count_correct
from fedmerit.tasks.task import Task
from fedmerit.types import ClientId, Evaluation, Model, Parcel, Replies
from fedmerit.updates import Updates


class LocalFleet:
    """Clients of a task, one after the other in this process."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def names(self) -> Sequence[str]:
        """The federation's names."""
        return self.task.federation.names

    def start(self, seed: int) -> Model:
        """The learner's first model."""
        return self.task.learner.start(seed)

    def train(self, index: int, parcels: Mapping[ClientId, Parcel], needs: Sequence[str], seed: int) -> Replies:
        """Train in client order."""
        ids = tuple(sorted(parcels))
        answers = [
            answer(self.task.learner, parcels[i], self.task.federation.samples(i), needs, seed, index, i) for i in ids
        ]
        updates = Updates(np.stack([update for update, _ in answers]))
        return Replies(ids, updates, tuple(facts for _, facts in answers), bytes_up=updates.rows.nbytes)

    def evaluate(self, models: Sequence[Model]) -> Sequence[Evaluation]:
        """One pass over all test rows per model."""
        return [count_correct(self.task.learner, model, self.task.federation.test) for model in models]
