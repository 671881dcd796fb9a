"""Caps: the most that one client, or all clients of one site, may hold of a round's weight.

A cap is a promise that needs no trust: whatever k clients of n claim or send, they hold at most k * cap / n together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import ANCHOR, SITE
from fedmerit.core.types import Vector
from fedmerit.core.weights.weigh import Note, Weights, total_variation
from fedmerit.errors import ConfigError

OUR_CAP = 2.0
"""The cap of our own recipes, in equal shares; the papers' have none."""
ANCHOR_SHARES = 2.0
"""A weight stays below this many times the client's share of all anchors, see `core.claims`."""
SLACK = 1e-12
"""What rounding may add to a bound: weights that are that near are within it."""


def check_caps(cap: float | None, cap_group: float | None) -> None:
    """A cap is 1 equal share or more, a cap of sites a share of the weight."""
    if cap is not None and not 1 <= cap < np.inf:
        raise ConfigError(
            f"cap is the most equal shares that a client may hold, 1 or more (1: all alike); got {cap}; leave it out "
            "to weigh without one"
        )
    if cap_group is not None and not 0 < cap_group <= 1:
        raise ConfigError(
            f"cap_group is the share of the weight that the clients of one site may hold, above 0 and up to 1; "
            f"got {cap_group}"
        )


def water_fill(weights: Vector, bounds: Vector) -> Vector:
    """min(mu * w_i, b_i) with the one mu that makes them sum to 1: what is cut flows to the others, in proportion.

    Where those with a weight have no room left, the rest goes to those without one, in proportion to their bounds.
    Weights within their bounds come back as they are; weights that are all 0 stay so. The bounds sum to 1 or more.

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
    """`water_fill` for weights above 0 whose bounds sum to more than 1.

    In the order in which they reach their bounds as mu grows, the first that fits with all before it at theirs.
    """
    with np.errstate(over="ignore"):
        order = np.argsort(bounds / weights, kind="stable")
    w, b = weights[order], bounds[order]
    left = 1 - np.concatenate([[0.0], np.cumsum(b)[:-1]])
    after = np.cumsum(w[::-1])[::-1]
    fits = left * w <= b * after
    full = int(fits.argmax()) if fits.any() else len(w) - 1
    shares = w[full:] / w[full:].max()  # first by the largest: the sum of tiny weights has no inverse
    poured = np.concatenate([b[:full], left[full] * (shares / shares.sum())])
    filled = np.empty(len(weights))
    filled[order] = np.minimum(poured, b)
    return filled


def cap_weights(
    weights: Vector,
    cap: float | None = None,
    *,
    anchors: Vector | None = None,
    sites: Vector | None = None,
    cap_group: float | None = None,
) -> Vector:
    """Weights that sum to 1 with none above `cap` equal shares; what is cut goes to the others by `water_fill`.

    anchors     with them no weight is above `ANCHOR_SHARES` times its share of the anchors either; where these bounds
                leave no room for all the weight, they are raised together, never past the cap
    sites       the number of each client's site; no site holds more than `cap_group`, which is raised as far as needed
                where the round has too few sites for it

    Theorem: any k of n clients hold at most k * cap / n. Each of them holds at most cap / n, whatever was claimed.

    >>> cap_weights(np.array([0.97, 0.02, 0.01]), 1.5).round(3).tolist()
    [0.5, 0.333, 0.167]
    """
    if not weights.any() or (cap is None and cap_group is None):
        return weights
    number = len(weights)
    most = np.full(number, 1.0 if cap is None else min(1.0, cap / number))
    bounds = most if anchors is None or cap is None else _anchored(most, anchors)
    within = water_fill(weights, bounds)
    if sites is None or cap_group is None:
        return within
    return _cap_sites(within, bounds, np.unique(sites, return_inverse=True)[1], cap_group)


def _anchored(most: Vector, anchors: Vector) -> Vector:
    """The bounds of the cap and of the anchors; anchors that leave too little room are raised in proportion."""
    if not anchors.any():
        return most
    bounds = np.minimum(most, ANCHOR_SHARES * anchors / anchors.sum())
    return bounds if bounds.sum() >= 1 else water_fill(bounds / bounds.sum(), most)


def _cap_sites(weights: Vector, bounds: Vector, sites: NDArray[np.intp], cap_group: float) -> Vector:
    """The sites' totals within their bounds; inside of each its clients keep their ratios as far as bounds allow."""
    totals, room = (np.asarray(np.bincount(sites, column), np.float64) for column in (weights, bounds))
    most = np.minimum(cap_group, room)
    if most.sum() < 1:  # too few sites in the round: the least bound that leaves room for all the weight
        most = water_fill(np.full(len(room), 1 / len(room)), room) if room.sum() > 1 else room
    if (totals <= most * (1 + SLACK)).all():
        return weights
    filled = np.zeros(len(weights))
    for site, total in enumerate(water_fill(totals, most)):
        here = sites == site
        inside = weights[here] if weights[here].any() else bounds[here]
        filled[here] = total * water_fill(inside / inside.sum(), bounds[here] / total) if total > 0 else 0.0
    return filled


def apply_caps(earned: Weights, cap: float | None, cap_group: float | None, facts: Mapping[str, Vector]) -> Weights:
    """The weights of a round within a recipe's caps; `uncapped` keeps what they were, and a note says what was cut."""
    if cap is None and cap_group is None:
        return earned
    before = earned.weights
    after = cap_weights(before, cap, anchors=facts.get(ANCHOR), sites=facts.get(SITE), cap_group=cap_group)
    if after is before:
        return replace(earned, uncapped=before)
    kept = [note for note in earned.notes if not (note.subject == "some" and (after > 0).all())]
    cut = int((after < before).sum())
    text = (
        f"the cap cut {cut} of {len(before)} weights, the largest from {before.max():.2%} to {after.max():.2%}: "
        f"{total_variation(before, after):.2%} of the weight went to others"
    )
    return replace(earned, weights=after, notes=(*kept, Note("cap", "weights", text)), uncapped=before)
