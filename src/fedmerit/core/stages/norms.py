"""Lengths: how long updates usually are, by all clients that came so far and not by those of one round alone."""

from __future__ import annotations

import numpy as np

from fedmerit.core.facts import LENGTH
from fedmerit.core.types import NOTHING, Cohort, History


def usual_length(cohort: Cohort, history: History) -> float:
    """The median of the last length of every client that came so far, of those that are not 0; 0 where all are.

    Where earlier lengths are not remembered, that of the round. In a round most may be attackers; of all clients
    fewer than half are.

    >>> from fedmerit.core.updates import Updates
    >>> cohort = Cohort(2, (0, 1), Updates(np.array([[10.0], [10.0]], dtype=np.float32)), {})
    >>> past = {LENGTH: {1: (10.0,), 2: (1.0,), 3: (1.0,), 4: (2.0, 1.0)}}
    >>> usual_length(cohort, History()), usual_length(cohort, History(recent=past))
    (10.0, 1.0)
    """
    before = {client: kept[-1] for client, kept in history.recent.get(LENGTH, NOTHING).items()}
    lengths = np.array([*(before | dict(zip(cohort.ids, cohort.updates.norms.tolist(), strict=True))).values()])
    moved = lengths[lengths > 0]
    return float(np.median(moved)) if len(moved) else 0.0
