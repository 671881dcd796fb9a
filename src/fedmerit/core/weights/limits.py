"""Limits: caps on the weight of one client.

A cap needs no trust: whatever k clients of n claim or send, they hold at most k * cap / n of the weight together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import Doc, part
from fedmerit.core.types import Note, Vector
from fedmerit.core.weights.weigh import Weights, total_variation

OUR_CAP = 2.0
"""Default cap of our recipes, in equal shares; the papers' recipes have none."""
USUAL_SHARES = 2.0
"""A weight is at most this many times the client's usual weight, if that is more than an equal share."""
USUAL_WEIGHT = "usual weight"
"""Key among the facts that limits get: the weights by the clients' usual claims, before any limit."""
SLACK = 1e-12
"""Relative tolerance: weights this close to a bound count as within it."""


def water_fill(weights: Vector, bounds: Vector) -> Vector:
    """Water filling: min(mu * w_i, b_i), with mu chosen so that the weights sum to 1.

    The excess goes to the remaining clients in proportion. If clients with a weight have no room left, the rest goes to
    clients without one, in proportion to their bounds. Weights within their bounds are returned unchanged; all-zero
    weights stay zero. The bounds must sum to 1 or more.

    >>> water_fill(np.array([0.7, 0.2, 0.1]), np.array([0.4, 0.5, 0.5])).round(3).tolist()
    [0.4, 0.4, 0.2]
    """
    if not weights.any() or (weights <= bounds * (1 + SLACK)).all():
        return weights
    if bounds.sum() <= 1 + SLACK:
        return np.asarray(bounds / bounds.sum())
    has = weights > 0
    if bounds[has].sum() <= 1:
        rest = bounds[~has]
        filled = bounds.copy()
        filled[~has] *= (1 - bounds[has].sum()) / rest.sum()
        return filled
    filled = np.zeros(len(weights))
    filled[has] = _pour(weights[has], bounds[has])
    return filled


def _pour(weights: Vector, bounds: Vector) -> Vector:
    """`water_fill` for weights above 0 whose bounds sum to more than 1, in one sort instead of a search for mu.

    In the order in which clients reach their bounds as mu grows, it finds the first that fits while all before it are
    at their bounds.
    """
    with np.errstate(over="ignore"):
        order = np.argsort(bounds / weights, kind="stable")
    w, b = weights[order], bounds[order]
    left = 1 - np.concatenate([[0.0], np.cumsum(b)[:-1]])
    after = np.cumsum(w[::-1])[::-1]
    fits = left * w <= b * after
    full = int(fits.argmax()) if fits.any() else len(w) - 1
    shares = w[full:] / w[full:].max()  # divided by the largest first: the sum of subnormal weights has no inverse
    poured = np.concatenate([b[:full], left[full] * (shares / shares.sum())])
    filled = np.empty(len(weights))
    filled[order] = np.minimum(poured, b)
    return filled


def cap_weights(weights: Vector, times: float) -> Vector:
    """Cap weights at `times` the equal share; the excess goes to the remaining clients by `water_fill`.

    Theorem: any k of n clients hold at most k * times / n, because each holds at most times / n.

    >>> cap_weights(np.array([0.97, 0.02, 0.01]), 1.5).round(3).tolist()
    [0.5, 0.333, 0.167]
    """
    return water_fill(weights, np.full(len(weights), min(1.0, times / len(weights))))


def usual_bounds(usual: Vector, times: float) -> Vector:
    """Largest weight of each client: twice its capped usual weight or an equal share, and at most the cap.

    They leave room for all the weight, because none is below an equal share.

    >>> usual_bounds(np.array([0.3, 0.3, 0.39, 0.01]), 2.0).round(3).tolist()
    [0.5, 0.5, 0.5, 0.25]
    """
    equal = 1 / len(usual)
    return np.minimum(np.maximum(USUAL_SHARES * cap_weights(usual, times), equal), min(1.0, times * equal))


class Limit(Protocol):
    """Bound on the weights of a group after they are earned."""

    def __call__(self, weights: Weights, facts: Mapping[str, Vector]) -> Weights:
        """Return the weights within the limit; `facts` are those of the same clients."""


@part("limit", "cap")
class Cap:
    """Cap weights at a multiple of the equal share; the excess goes to the remaining clients in proportion.

    With the stage `Claims`, a weight is also at most twice the weight that the client would have if every client of the
    round reported its usual claims, or one equal share, whichever is larger.

    times      a client gets at most this many times the equal share

    >>> Cap(1.5).times
    1.5
    """

    times: Annotated[float, Interval(ge=1), Doc("a client gets at most this many times the equal share")] = OUR_CAP
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "the excess goes to other clients; use `private(recipe, ...)`, which makes it max_weight"
    }

    def __call__(self, weights: Weights, facts: Mapping[str, Vector]) -> Weights:
        """Apply `cap_weights` to the group, and `usual_bounds` if claims differ from the usual ones."""
        after = cap_weights(weights.weights, self.times)
        if USUAL_WEIGHT in facts:
            after = water_fill(after, usual_bounds(facts[USUAL_WEIGHT], self.times))
        return _limited(weights, after)


def _limited(earned: Weights, after: Vector) -> Weights:
    """Apply a limit; `uncapped` keeps the weights before any limit, and a note reports the excess."""
    before = earned.weights
    uncapped = before if earned.uncapped is None else earned.uncapped
    if after is before:
        return replace(earned, uncapped=uncapped)
    notes = [note for note in earned.notes if not (note.subject == "some" and (after > 0).all())]
    cut = int((after < before).sum())
    text = (
        f"the cap cut {cut} of {len(before)} weights, the largest from {before.max():.2%} to {after.max():.2%}: "
        f"{total_variation(before, after):.2%} of the weight went to the remaining clients"
    )
    return replace(earned, weights=after, notes=(*notes, Note("cap", "weights", text)), uncapped=uncapped)
