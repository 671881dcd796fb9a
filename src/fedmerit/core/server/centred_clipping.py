"""Centred clipping: iterative averaging that clips each update's distance to the centre [Karimireddy 2021]."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import Doc, part
from fedmerit.core.server.aggregators import NOT_ACCOUNTED
from fedmerit.core.server.server import SERVER_MODEL, Batch, Kept
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.types import Matrix, Model, Rows, Vector


@part("aggregator", "centred-clipping")
class CentredClipping:
    """Centred clipping: v <- v + sum_k w_k (update_k - v) min(1, radius / ||update_k - v||), from the last aggregate.

    The paper's weights are 1/n; here they are the earned ones. In the first round v starts at 0. An attacker moves the
    aggregate by at most its weight times `radius` per iteration, and by less the closer the honest updates are [CC].

    >>> from fedmerit.core.updates import Updates
    >>> updates = Updates(np.array([[1.0], [1.0], [90.0]], dtype=np.float32))
    >>> CentredClipping(radius=1.0)(Batch(updates), np.full(3, 1 / 3)).round(3).tolist()
    [1.0]
    """

    radius: Annotated[float, Interval(gt=0), Doc("distance up to which an update counts in full")] = 10.0
    iterations: Annotated[int, Interval(ge=1), Doc("how often the aggregate is moved; the paper's is 1")] = 1
    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Use two passes over the updates per iteration and weighting."""
        zeros = np.zeros(batch.updates.length, np.float32)
        rows = [self._centre(batch, one / one.sum()) if one.any() else zeros for one in np.atleast_2d(weights)]
        return np.stack(rows).reshape(*weights.shape[:-1], batch.updates.length)

    def _start(self, batch: Batch) -> Model:
        last: Model | None = batch.own.get("aggregate")
        return np.zeros(batch.updates.length, np.float32) if last is None else last

    def _centre(self, batch: Batch, shares: Vector) -> Model:
        centre = self._start(batch)
        for _ in range(self.iterations):
            parts = shares * clip_factors(batch.updates.distances(centre), self.radius)
            centre = batch.updates.combine(parts) + np.float32(1 - parts.sum()) * centre
        return centre

    def after(self, batch: Batch, aggregate: Model) -> Kept:
        """Store the aggregate, from which the next round starts."""
        return Kept({"aggregate": aggregate})
