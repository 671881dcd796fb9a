"""Backtracking: search over the orders of the criteria by the clients' accuracy [DAFL, Alg. 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.models.shared import Job
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import SEARCH_WHY, Choice, Weighting, kendall, orders_of
from fedmerit.core.server.server import Batch
from fedmerit.core.types import SplitName

T = TypeVar("T")


class Answer(NamedTuple):
    """Clients' result for a candidate: its accuracy, and whether it is acceptable."""

    quality: float
    good: bool


AskClients: TypeAlias = Callable[[Sequence[T]], Sequence[Answer]]
"""Asks the clients about one or several candidates, in one exchange."""


@part("search", "backtracking")
class Backtracking:
    """Keep the current order of criteria unless it is worse than the last round; otherwise try others [DAFL, Alg. 1].

    The first acceptable order is used, or the best one if none is acceptable. The nearest order by Kendall's distance
    is tried first.

    adjust_on   clients decide on validation rows, or on test rows (the paper: it reports the rows it chose on)
    tolerance   weightings whose weights differ by at most this total variation count as one

    The paper asks about one order after the other. Here all remaining orders go into one exchange: the choice is the
    same, and an exchange takes seconds on a deployment.

    >>> Backtracking().asks
    'validation'
    """

    adjust_on: Annotated[SplitName, Doc("which rows decide; the paper chooses on the test rows that it reports")] = (
        "validation"
    )
    tolerance: Annotated[
        float, Interval(ge=0, le=1), Doc("weightings that differ by at most this total variation count as one")
    ] = 0.01
    why: ClassVar[Mapping[str, str]] = SEARCH_WHY

    @property
    def needs(self) -> Words:
        """One model, and clients that test candidates on these rows."""
        return frozenset({"shared model", "evaluation", f"{self.adjust_on} rows"})

    @property
    def asks(self) -> SplitName:
        """Rows on which clients decide."""
        return self.adjust_on

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Return every order of the recipe's criteria."""
        return orders_of(base)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """Return the current weighting, then the nearest; ties by name, then as listed."""
        remaining = [weighting for weighting in weightings if weighting != current]
        remaining.sort(key=lambda weighting: (kendall(current.priority, weighting.priority), weighting.priority))
        return [current, *remaining]

    def choose(self, batch: Batch, job: Job) -> Choice:
        """Return the candidate that `pick` selects; a single candidate needs no exchange."""
        evaluator = CandidateEvaluator(batch, job, self.asks)
        if len(evaluator) == 1:
            return evaluator.choice(0)
        reference: float | None = job.view.own_of("search").get("quality")

        def ask(places: Sequence[int]) -> list[Answer]:
            evaluator.ask(places, before=reference is None and evaluator.before is None)
            threshold = evaluator.before.quality if evaluator.before is not None else reference
            qualities = [evaluator.evaluations[place].quality for place in places]
            return [Answer(quality, threshold is not None and quality >= threshold) for quality in qualities]

        place = self.pick(range(len(evaluator)), ask)
        quality = evaluator.evaluations[place].quality
        return evaluator.choice(place, None if np.isnan(quality) else quality)

    def pick(self, candidates: Sequence[T], ask: AskClients[T]) -> T:
        """Return the first acceptable candidate, or the best if none is acceptable.

        Ties go to the earliest. If nobody answers (the quality is NaN) the current weighting stays.
        """
        # The current weighting is sent first: it is usually accepted, which saves the test of all remaining orders.
        tried: list[tuple[T, Answer]] = []
        for chunk in filter(len, (candidates[:1], candidates[1:])):
            tried += zip(chunk, ask(chunk), strict=True)
            good = next((candidate for candidate, answer in tried if answer.good), None)
            if good is not None:
                return good
        return max(tried, key=lambda pair: -np.inf if np.isnan(pair[1].quality) else pair[1].quality)[0]
