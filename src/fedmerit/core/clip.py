"""Clip: updates longer than a limit are cut to it before they are aggregated, so that no client shouts.

Only the aggregate sees the cut updates. Criteria, groups and what clients are told go by the updates as they came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedmerit.core.facts import CLIP
from fedmerit.core.types import Cohort, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights import Note
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Clip:
    """update * min(1, C / ||update||_2), C a number, or the median length of the round's updates that are not zero.

    Fewer than half of the clients cannot move the median beyond the lengths of the others. With the mean the factors
    go into the weights, and no update is copied.

    >>> Clip()(np.array([1.0, 2.0, 10.0])).tolist()
    [1.0, 1.0, 0.2]
    """

    norm: float | Literal["median"] = "median"

    def __post_init__(self) -> None:
        if self.norm != "median" and not (isinstance(self.norm, float | int) and 0 < self.norm < np.inf):
            raise ConfigError(f'clip.norm is a length above 0, or "median"; got {self.norm!r}')

    def limit(self, norms: Vector) -> float:
        """C of a round with updates of these lengths."""
        moved = norms[norms > 0]
        if self.norm != "median":
            return float(self.norm)
        return float(np.median(moved)) if len(moved) else 0.0

    def __call__(self, norms: Vector) -> Vector:
        """What is left of each update, 0..1."""
        longest = self.limit(norms)
        return np.asarray(np.divide(longest, norms, out=np.ones(len(norms)), where=norms > longest))


def clip_cohort(clip: Clip | None, cohort: Cohort) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the fact `clip`, what is left of each update; and a note on who was cut the most."""
    if clip is None or not cohort.ids:
        return cohort, ()
    norms = cohort.updates.norms
    left = clip(norms)
    cohort = replace(cohort, facts={**cohort.facts, CLIP: left})
    if not (left < 1).any():
        return cohort, ()
    most = int(left.argmin())
    of = "the median length" if clip.norm == "median" else "recipe.clip.norm"
    text = (
        f"{(left < 1).sum()} of {len(left)} updates are cut to a length of {clip.limit(norms):.4g}, {of}; "
        f"the longest, of client {cohort.ids[most]}, to {left[most]:.2%} of what it was"
    )
    return cohort, (Note("clipped", "updates", text),)


def clipped(cohort: Cohort) -> Updates:
    """The updates as they are aggregated."""
    return cohort.updates.mix(cohort.facts[CLIP]) if CLIP in cohort.facts else cohort.updates
