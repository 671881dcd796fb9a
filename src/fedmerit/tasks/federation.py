"""A federation's data: every client's rows side by side, so that one array serves all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.types import ClientId, Samples


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


@dataclass(frozen=True, slots=True)
class Federation:
    """Who the clients are and what each holds for training and for testing."""

    names: tuple[str, ...]
    train: Split
    test: Split
    classes: int

    def samples(self, client: ClientId) -> Samples:
        """The client's training rows."""
        rows = self.train.rows(client)
        attributes = {name: column[rows] for name, column in self.train.attributes.items()}
        return Samples(self.train.x[rows], self.train.y[rows], self.classes, attributes)
