"""What a method is: the worth that it gives to clients, the weights that it gives them, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.weighbench.cells import Array, Cell, Step
from fedmerit import Recipe

Weighting = Array | Recipe | Callable[[], Step]
"""Constant weights, a recipe for `federate`, or a function that begins a run and returns what its rounds do."""


@dataclass(frozen=True)
class Method:
    """A method under test.

    worth       cell -> a number per client, higher is worth more; None: the mean weights
    weighting   cell -> how it weighs clients; None: the positive part of the worth
    sends       what clients send in addition to update and rows, in numbers; d inputs, k classes
    server      whether it needs rows of the server
    """

    worth: Callable[[Cell], Array] | None = None
    weighting: Callable[[Cell], Weighting] | None = None
    sends: str = "nothing"
    server: bool = False


def positive(values: Array) -> Array:
    """Weights in proportion to the positive part; equal ones where nothing is positive."""
    kept = np.maximum(np.asarray(values, dtype=float), 0)
    return kept / kept.sum() if kept.sum() > 0 else np.full(len(kept), 1 / len(kept))


def cosines(updates: Any, towards: Any) -> Array:
    """Cosine of each update with a vector; 0 for an update of 0."""
    norms = np.linalg.norm(updates, axis=1) * np.linalg.norm(towards)
    return np.divide(updates @ towards, norms, out=np.zeros(len(updates)), where=norms > 0).astype(float)
