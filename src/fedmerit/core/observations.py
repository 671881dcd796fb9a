"""Observations: what the server saw of each update by itself, whatever the recipe makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.core.updates import Updates


@dataclass(frozen=True, slots=True)
class Observations:
    """Of each client of a round, in client order: how long its update is, and how far it goes with the others'.

    `cosines` are those with the sum of the others' directions: cos(u_i, sum over j != i of u_j / |u_j|). Every client
    has one voice in that sum, however long its update. NaN for an update of zeros, and where there are no others.
    """

    norms: Vector
    cosines: Vector


def observe_updates(updates: Updates) -> Observations:
    """Two passes over the updates: sums of directions, then products with them.

    >>> seen = observe_updates(Updates(np.array([[2, 0], [1, 0], [-5, 0]], np.float32)))
    >>> seen.norms.tolist(), seen.cosines.tolist()
    ([2.0, 1.0, 5.0], [nan, nan, -1.0])
    """
    norms = updates.norms
    known = norms > 0
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=known)
    directions = updates.combine(inverse)
    along = updates.dots(directions) * inverse
    others = along - known  # u_i / |u_i| times the sum of the others' directions
    lengths = np.sqrt(np.maximum(float(np.dot(directions, directions)) - 2 * along + known, 0.0))
    told = known & (lengths > 1e-6 * max(len(norms), 1))
    cosines = np.divide(others, lengths, out=np.full_like(norms, np.nan), where=told)
    return Observations(norms, np.clip(cosines, -1, 1))
