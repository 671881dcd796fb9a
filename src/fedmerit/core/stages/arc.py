"""ARC: adaptive robust clipping, whose threshold follows the norms of the round's updates [ARC]."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLIP
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.stages.clip import CLIP_WHY, clip_fact, clip_factors, clip_note
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import View
from fedmerit.core.types import Cohort, Vector


@part("stage", "arc")
class Arc:
    """Clip the k = floor(2 f / n (n - f)) largest updates to the norm of the next largest [ARC].

    f = `share` * n is the expected number of attackers among n clients. If k is 0 nothing is clipped. A fixed threshold
    helps against some attacks and costs accuracy without one; this one keeps the guarantees of the robust aggregator
    that follows.

    >>> Arc(0.25).limit(np.array([1.0, 2.0, 3.0, 90.0]))  # k = 1: the largest norm becomes the second largest
    3.0
    """

    share: Annotated[float, Interval(ge=0, lt=0.5), Doc("f / n: the share of the clients that may attack")] = 0.2

    phase: ClassVar[Phase] = "bound"
    name: ClassVar[str] = "arc"
    needs: ClassVar[Words] = frozenset({"server model"})
    takes: ClassVar[Words] = frozenset({"whole updates"})
    why: ClassVar[Mapping[str, str]] = CLIP_WHY

    def limit(self, norms: Vector) -> float:
        """Return the norm to which updates with these norms are clipped."""
        number = len(norms)
        clipped = math.floor(2 * self.share * (number - self.share * number) + 1e-9)
        return float(np.sort(norms)[number - 1 - min(clipped, number - 1)])

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Measure the fact `clip`, with a note on the update that was clipped most."""
        limit = self.limit(cohort.updates.norms)
        left = clip_factors(cohort.updates.norms, limit)
        return Measured({CLIP: clip_fact(cohort, left)}, clip_note(left, f"{limit:.4g} (ARC)", cohort))
