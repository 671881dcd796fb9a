"""Clip: updates longer than a limit are cut to it before they are aggregated, so that no client shouts.

Only the aggregate sees the cut updates. Criteria, groups and what clients are told go by the updates as they came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedmerit.core.facts import CLIP, COMPANY
from fedmerit.core.stages.norms import usual_length
from fedmerit.core.types import Cohort, History, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import Note
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Clip:
    """update * min(1, C / ||update||_2), C a number, or `times` the median length of the updates that are not zero.

    Fewer than half of the clients cannot move the median beyond the lengths of the others. Where the recipe remembers
    lengths (`Company`), it is the median of all clients that came so far. With the mean the factors
    go into the weights, and no update is copied.

    >>> Clip()(np.array([1.0, 2.0, 10.0])).tolist()
    [1.0, 1.0, 0.2]
    """

    norm: float | Literal["median"] = "median"
    times: float = 1.0

    def __post_init__(self) -> None:
        if self.norm != "median" and not (isinstance(self.norm, float | int) and 0 < self.norm < np.inf):
            raise ConfigError(f'clip.norm is a length above 0, or "median"; got {self.norm!r}')
        if not 0 < self.times < np.inf:
            raise ConfigError(f"clip.times is a multiple of the median length, above 0; got {self.times}")

    def limit(self, norms: Vector, usual: float | None = None) -> float:
        """C of a round with updates of these lengths; `usual` is the median length, where it is not theirs."""
        if self.norm != "median":
            return float(self.norm)
        if usual is None:
            moved = norms[norms > 0]
            usual = float(np.median(moved)) if len(moved) else 0.0
        return self.times * usual

    def __call__(self, norms: Vector, usual: float | None = None) -> Vector:
        """What is left of each update, 0..1."""
        longest = self.limit(norms, usual)
        return np.asarray(np.divide(longest, norms, out=np.ones(len(norms)), where=norms > longest))


def clip_cohort(clip: Clip | None, cohort: Cohort, history: History) -> tuple[Cohort, tuple[Note, ...]]:
    """The cohort with the fact `clip`, what is left of each update; and a note on who was cut the most.

    Nothing is left of who is set apart (`Company`): where the others have no room below the cap the rest of the weight
    is theirs, and their updates must not come with it.
    """
    if clip is None or not cohort.ids:
        return cohort, ()
    norms, usual = cohort.updates.norms, usual_length(cohort, history)
    left = clip(norms, usual)
    apart = cohort.facts.get(COMPANY, left) == 0
    cohort = replace(cohort, facts={**cohort.facts, CLIP: np.where(apart, 0.0, left)})
    if not (left < 1).any():
        return cohort, ()
    most = int(left.argmin())
    of = "recipe.clip.norm"
    if clip.norm == "median":
        of = "the median length" if clip.times == 1 else f"{clip.times:g} medians"
    text = (
        f"{(left < 1).sum()} of {len(left)} updates are cut to a length of {clip.limit(norms, usual):.4g}, {of}; "
        f"the longest, of client {cohort.ids[most]}, to {left[most]:.2%} of what it was"
    )
    return cohort, (Note("clipped", "updates", text),)


def clipped(cohort: Cohort) -> Updates:
    """The updates as they are aggregated."""
    return cohort.updates.mix(cohort.facts[CLIP]) if CLIP in cohort.facts else cohort.updates
