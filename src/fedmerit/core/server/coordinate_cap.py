"""Coordinate cap: bound each coordinate of an aggregate by what clients, or the server itself, usually move it."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedmerit.core.parts import Doc, Words, declared, part
from fedmerit.core.server.aggregators import NOT_ACCOUNTED
from fedmerit.core.server.server import MEAN, SERVER_MODEL, Aggregator, Batch, Kept
from fedmerit.core.types import Matrix, Model, Rows, Vector

KEEP = np.float32(0.8)
"""Share of the mean square that is kept in each round: about five rounds count, since one on few rows is noisy."""
SQUARE = "square"
SERVER_TRAINING: Words = frozenset({"server training"})
TRAINING_WHY: Mapping[str, str] = {**NOT_ACCOUNTED, "server training": "set task.server = 1000"}


@part("aggregator", "coordinate-cap")
class CoordinateCap:
    """Bound each coordinate of another aggregate: |a_c| <= s_c.

    s_c is the median over the clients of |u_c|, without updates of zeros and excluded clients; or, by = `server`, the
    root of the running mean square 0.8 v + 0.2 u_0c^2 of the server's own update. A trigger or one class's output needs
    coordinates to move far that honest clients, or the server, hardly move.

    >>> from fedmerit.core.updates import Updates
    >>> updates = Updates(np.array([[1.0, 0.25], [1.5, 0.5], [0.5, 9.0]], dtype=np.float32))
    >>> CoordinateCap()(Batch(updates), np.full(3, 1 / 3)).tolist()
    [1.0, 0.5]
    """

    of: Annotated[Aggregator, Doc("what is bounded")] = MEAN
    by: Annotated[Literal["clients", "server"], Doc("whose moves are the bound")] = "clients"

    why: ClassVar[Mapping[str, str]] = TRAINING_WHY

    @property
    def needs(self) -> Words:
        """What the inner aggregator needs, and for `server` a server that trains."""
        return (
            SERVER_MODEL | frozenset(declared(self.of, "needs")) | (SERVER_TRAINING if self.by == "server" else set())
        )

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """One bound for all weightings."""
        bound = np.sqrt(_square(batch)) if self.by == "server" else _median(batch)
        return np.clip(self.of(batch, weights), -bound, bound)

    def after(self, batch: Batch, aggregate: Model) -> Kept:
        """Keep the running mean square of the server's update."""
        return Kept({SQUARE: _square(batch)} if self.by == "server" else {})


def _median(batch: Batch) -> Model:
    moved = batch.updates.norms > 0
    if not moved.any():
        return np.zeros(batch.updates.length, np.float32)
    return batch.updates.by_columns(lambda block: np.median(np.abs(block[moved]), axis=0))


def _square(batch: Batch) -> Model:
    assert batch.view is not None  # a round has one
    square, last = np.square(batch.view.server_update()), batch.own.get(SQUARE)
    return np.asarray(square if last is None else KEEP * last + (1 - KEEP) * square)
