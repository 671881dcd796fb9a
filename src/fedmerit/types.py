"""The values that pass between the stages of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedmerit.updates import Updates

ClientId: TypeAlias = int
"""A client's place in its federation, 0..K-1; people see its name instead."""

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Model: TypeAlias = NDArray[np.float32]
"""All of a model's parameters as one flat float32 row."""

Normalise: TypeAlias = Literal["sum", "max", "none"]

Asked: TypeAlias = Literal["validation", "test"]
"""Which of their rows clients are asked about."""


@dataclass(frozen=True, slots=True)
class Samples:
    """One client's rows: inputs, labels, and any attribute known per row (for example `Blurry`)."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    classes: int
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a client receives before it trains: a model to start from, or None to go on from its own.

    With `keep` the trained model becomes the client's own, for later rounds.
    """

    model: Model | None
    keep: bool = False

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return 0 if self.model is None else self.model.nbytes


@dataclass(frozen=True, slots=True)
class Replies:
    """What came back from a fleet, nothing of it checked yet; row i of `updates` and `facts[i]` belong to `ids[i]`."""

    ids: tuple[ClientId, ...]
    updates: Updates
    facts: tuple[Mapping[str, Any], ...]
    failed: Mapping[ClientId, str] = field(default_factory=dict)
    bytes_up: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """What one round brought in: clients in id order, their updates and facts row by row."""

    index: int
    ids: tuple[ClientId, ...]
    updates: Updates
    facts: Mapping[str, Vector]


@dataclass(frozen=True, slots=True)
class History:
    """What the server remembers of earlier rounds: in how many each client took part."""

    rounds: int = 0
    participations: Mapping[ClientId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One model on every client's test set; clients that hold no test rows, or did not answer, have size 0."""

    correct: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """Share of all test rows that are right: the clients' accuracies weighted by test size (SPEC A7)."""
        total = int(self.sizes.sum())
        return int(self.correct.sum()) / total if total else float("nan")

    @property
    def local(self) -> Vector:
        """Accuracy per client; NaN where there is no test row."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.correct / self.sizes, dtype=np.float64)
