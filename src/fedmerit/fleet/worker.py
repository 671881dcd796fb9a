"""Work of the local fleet's processes: train clients, or test models on a range of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.attacks.attack import NOBODY, Attackers
from fedmerit.core.host import predict_all, predict_rows
from fedmerit.core.learner import Learner
from fedmerit.core.objectives import Objective
from fedmerit.core.seeds import attack_seed, train_seed
from fedmerit.core.targets import count_losses, right_rows
from fedmerit.core.types import AskedRows, ClientId, Model, Samples, SplitName, read_only
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.client import Job, as_sent, deceive, shared_rows, train_clients
from fedmerit.tasks.federation import Split

PERSONAL = -1
"""Stands for the client's personal model in place of a model's row."""
Output: TypeAlias = tuple[NDArray[Any], NDArray[np.float32] | None]
Rows: TypeAlias = tuple[int, int]
"""First row and end of a range."""


class Place(NamedTuple):
    """A client, the row of its start model (or PERSONAL), the row for its update, and the vectors it receives."""

    client: ClientId
    model: int
    row: int
    epochs: int | None
    extras: tuple[tuple[str, int], ...] = ()
    lr: float | None = None
    local_model: tuple[int, float, bool] | None = None
    """The row of the client's local model, or PERSONAL, its pull, and whether it is sent."""


@dataclass(frozen=True, slots=True)
class SharedSplit:
    """A split whose arrays are in shared blocks."""

    x: Block
    y: Block
    offsets: Block
    attributes: Mapping[str, Block]

    @classmethod
    def of(cls, split: Split) -> Self:
        """Copy a split into blocks."""
        attributes = {name: Block.of(np.asarray(column)) for name, column in split.attributes.items()}
        return cls(Block.of(split.x), Block.of(split.y), Block.of(split.offsets), attributes)

    def split(self) -> Split:
        """Return an ordinary split; nothing is copied."""
        attributes = {name: block.array for name, block in self.attributes.items()}
        return Split(self.x.array, self.y.array, self.offsets.array, attributes)


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything that a worker needs, sent once: learner, data, and the shared rows of models and updates."""

    learner: Learner
    classes: int
    train: SharedSplit
    asked: Mapping[str, SharedSplit]
    models: Block
    updates: Block
    right: Block
    losses: Block | None = None
    personal: Block | None = None
    local_model: Block | None = None
    extras: Mapping[str, Block] = field(default_factory=dict)
    attackers: Attackers = NOBODY
    own: Sequence[Mapping[str, float | str]] = ()
    wire: str = "float32"

    def __call__(self, kind: str, *job: Any) -> Any:
        """Call the method `kind`: it trains clients, or tests models on rows of all clients or of one."""
        with shared_rows():
            return getattr(self, kind)(*job)

    def train_clients(
        self, places: Sequence[Place], facts: Sequence[str], seed: int, index: int
    ) -> list[tuple[dict[str, float], float]]:
        """Train from `models[model]` and write the update to `updates[row]`; return each client's facts and seconds.

        PERSONAL stands for the client's personal model. A worker has no state, because its client is repeated if it
        dies.
        """
        jobs = [
            Job(
                self._model(place.client, place.model),
                self._samples(place.client),
                train_seed(seed, index, place.client),
                place.epochs,
                {name: self._model(place.client, slot) for name, slot in place.extras},
                place.lr,
                None
                if place.local_model is None
                else (self._model(place.client, place.local_model[0]), *place.local_model[1:]),
            )
            for place in places
        ]
        answers = [
            as_sent(
                deceive(
                    answer, self.attackers.of(place.client), self.classes, attack_seed(seed, index, place.client), index
                ),
                self.wire,
            )
            for place, answer in zip(places, train_clients(self.learner, jobs, facts), strict=True)
        ]
        for place, answer in zip(places, answers, strict=True):
            self.updates.array[place.row] = answer.update
            for name, vectors in self.extras.items():
                vectors.array[place.row] = answer.extras[name]
            if answer.local_model is not None:
                assert self.local_model is not None  # the fleet made room
                self.local_model.array[place.row] = answer.local_model
        for block in (self.updates, self.personal, self.local_model, *self.extras.values()):
            if block is not None and block.on_disk:
                block.release()
        return [(answer.facts, answer.seconds) for answer in answers]

    def _samples(self, client: ClientId) -> Samples:
        samples = self.train.split().samples(client, self.classes)
        return replace(samples, own=self.own[client]) if self.own else samples

    def count_right(self, on: SplitName, client: ClientId, model: int) -> int:
        """Count the client's rows that its personal model, or `models[model]`, predicts correctly."""
        split = self.asked[on].split()
        rows = split.rows(client)
        x = read_only(split.x[rows])
        return int(right_rows(self.learner, self._model(client, model), x, split.y[rows]).sum())

    def answer(self, on: str, client: ClientId, model: int) -> Output:
        """Predictions of a model for a client's rows and, if the learner has them, probabilities."""
        split = self.asked[on].split()
        return predict_all(self.learner, self._model(client, model), read_only(split.x[split.rows(client)]))

    def audit(self, on: str, client: ClientId, model: int, objectives: Sequence[Objective]) -> dict[str, float]:
        """Objectives of a model on a client's rows."""
        rows = self.asked[on].split().samples(client, self.classes).read_only()
        predictions = predict_rows(self.learner, rows, [self._model(client, model)])
        return {objective.name: float(objective(predictions)[0]) for objective in objectives}

    def _model(self, client: ClientId, model: int) -> Model:
        if model != PERSONAL:
            return read_only(np.asarray(self.models.array[model], dtype=np.float32))
        assert self.personal is not None  # the fleet sends PERSONAL only to clients that have one
        return read_only(np.asarray(self.personal.array[client], dtype=np.float32))

    def test_rows(self, on: AskedRows, models: int, ranges: Sequence[Rows], losses: bool) -> None:
        """Mark in `right` the rows that each of the first models predicts correctly; also write losses if requested."""
        rows, x, y = self._ranges(on, ranges)
        for place in range(models):
            model = read_only(self.models.array[place])
            if losses:
                assert self.losses is not None  # the fleet made room
                self.right.array[place, rows], self.losses.array[place, rows] = count_losses(self.learner, model, x, y)
            else:
                self.right.array[place, rows] = right_rows(self.learner, model, x, y)

    def _ranges(self, on: AskedRows, ranges: Sequence[Rows]) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
        """Indices of the rows, their inputs and their labels."""
        split = self.asked[on].split()
        rows = np.concatenate([np.arange(start, stop) for start, stop in ranges])
        (start, stop), alone = ranges[0], len(ranges) == 1
        return rows, read_only(split.x[start:stop] if alone else split.x[rows]), split.y[rows]
