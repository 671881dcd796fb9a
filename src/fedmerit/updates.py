"""Updates: what the clients of one round learned, one float32 row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmerit.types import Model, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """The (n, d) matrix of updates: trained model minus the model it started from."""

    rows: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, places: NDArray[np.intp]) -> Updates:
        """The updates at the given places, in that order."""
        return Updates(self.rows[places])

    def norms(self) -> Vector:
        """Euclidean length of each row, summed in double precision."""
        return np.array([np.sqrt(np.dot(row, row)) for row in map(np.float64, self.rows)])

    def combine(self, weights: Vector) -> Model:
        """sum_i weights[i] * row[i]."""
        return np.asarray(weights.astype(np.float32) @ self.rows, dtype=np.float32)
