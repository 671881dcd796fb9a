"""Clipping: bound the norms of updates before aggregation, so that no client dominates the aggregate.

Only the aggregator sees clipped updates. Criteria, groups and diagnostics use the updates as they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLIP, EXCLUDED
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.stages.stages import Measured, Phase, median_norm
from fedmerit.core.state import View
from fedmerit.core.types import Cohort, Note, Vector

CLIP_WHY: Mapping[str, str] = {
    "whole updates": "a clip shortens updates; use the mean without clip",
    "accounted": "the clip depends on the norms of all updates; privacy.clip is in the account, remove this stage",
}


@part("stage", "clip")
class Clip:
    """Scale updates to a maximum norm: update * min(1, C / ||update||_2).

    C is `times` the median norm of the updates that are not zero: of all clients so far if a part remembers norms
    (`SimilarityFilter`), otherwise of the round. Fewer than half of the clients cannot move the median
    beyond the norms of the remaining clients. An excluded client's update gets factor 0, because its weight may be
    above 0 if the remaining clients have no room below a cap. With the mean, the factors are multiplied into the
    weights, and no update is copied.

    times   multiple of the median

    >>> clip_factors(np.array([1.0, 2.0, 10.0]), limit=Clip().times * 2.0).tolist()
    [1.0, 1.0, 0.2]
    """

    times: Annotated[float, Interval(gt=0), Doc("multiple of the median norm of the updates")] = 1.0

    phase: ClassVar[Phase] = "bound"
    name: ClassVar[str] = "clip"
    needs: ClassVar[Words] = frozenset({"server model"})
    takes: ClassVar[Words] = frozenset({"whole updates"})
    why: ClassVar[Mapping[str, str]] = CLIP_WHY

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Measure the fact `clip`, with a note on the update that was clipped most."""
        limit = self.times * median_norm(cohort, view.history)
        left = clip_factors(cohort.updates.norms, limit)
        of = "the median norm" if self.times == 1 else f"{self.times:g} median norms"
        note = clip_note(left, f"{limit:.4g}, {of}", cohort)
        return Measured({CLIP: clip_fact(cohort, left)}, note)


def clip_factors(norms: Vector, limit: float) -> Vector:
    """Factor min(1, C / norm) of each update.

    >>> clip_factors(np.array([0.5, 4.0]), 1.0).tolist()
    [1.0, 0.25]
    """
    return np.asarray(np.divide(limit, norms, out=np.ones(len(norms)), where=norms > limit))


def clip_fact(cohort: Cohort, left: Vector) -> Vector:
    """Fact `clip` after one more clipping stage; 0 for excluded clients."""
    left = left * cohort.facts[CLIP] if CLIP in cohort.facts else left
    return np.where(cohort.facts[EXCLUDED] > 0, 0.0, left) if EXCLUDED in cohort.facts else left


def clip_note(left: Vector, limit: str, cohort: Cohort) -> tuple[Note, ...]:
    """Note on the number of clipped updates and the limit; nothing if none was clipped."""
    if not (left < 1).any():
        return ()
    most = int(left.argmin())
    text = (
        f"{(left < 1).sum()} of {len(left)} updates are clipped to a norm of {limit}; the longest, of client "
        f"{cohort.ids[most]}, to {left[most]:.2%} of its norm"
    )
    return (Note("clipped", "updates", text),)
