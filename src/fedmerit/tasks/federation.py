"""A federation's data: every client's rows side by side, so that one array serves all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import ClientId, Samples


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of all clients, one after the other; client i owns rows `offsets[i]:offsets[i + 1]`.

    Images are uint8 of shape (N, height, width, channels); tabular rows are float32 of shape (N, features).
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    offsets: NDArray[np.int64]
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows per client."""
        return np.diff(self.offsets)

    def rows(self, client: ClientId) -> slice:
        """The client's rows."""
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def emptied(self) -> Split:
        """The same clients without any rows."""
        attributes = {name: column[:0] for name, column in self.attributes.items()}
        offsets = np.zeros(len(self.offsets), dtype=np.int64)  # not zeros_like, which would write to the memory
        return Split(self.x[:0], self.y[:0], offsets, attributes)


NO_ROWS = Split(np.empty(0), np.empty(0, np.int64), np.zeros(1, np.int64))
"""Stands for `no validation rows` until the number of clients is known."""


@dataclass(frozen=True, slots=True)
class Federation:
    """Who the clients are and what each holds: rows to train on, to be tested on, and for validation.

    Validation rows are what a search or an acceptance test asks about; by default nobody has any. `server` are rows
    that only the server has, to score models on.
    """

    names: tuple[str, ...]
    train: Split
    test: Split
    classes: int
    validation: Split = NO_ROWS
    server: Samples | None = None

    def __post_init__(self) -> None:
        if self.validation is NO_ROWS:
            object.__setattr__(self, "validation", self.train.emptied())

    def samples(self, client: ClientId) -> Samples:
        """The client's training rows."""
        rows = self.train.rows(client)
        attributes = {name: column[rows] for name, column in self.train.attributes.items()}
        return Samples(self.train.x[rows], self.train.y[rows], self.classes, attributes)

    def limits(self) -> dict[str, float]:
        """The most that a client may claim, by fact: all rows of the federation, all classes of the task."""
        return {"samples": float(len(self.train.y)), "labels": float(self.classes)}
