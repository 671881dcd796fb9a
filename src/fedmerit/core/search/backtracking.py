"""Backtracking: the search for an order of the criteria, by the clients' accuracy [DAFL, Alg. 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.models.shared import Job
from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import SEARCH_WHY, Choice, Weighting, kendall, orders_of
from fedmerit.core.server.server import Batch
from fedmerit.core.types import SplitName

Orders: TypeAlias = Literal["kendall", "lexicographic", "random", "all"]
Reference: TypeAlias = Literal["last", "best_so_far"]
T = TypeVar("T")


class Answer(NamedTuple):
    """What the clients report of a candidate: its accuracy, and whether it may be accepted."""

    quality: float
    good: bool


AskClients: TypeAlias = Callable[[Sequence[T]], Sequence[Answer]]
"""Ask the clients about one or several candidates, in one exchange."""


@part("search", "backtracking")
class Backtracking:
    """The current weighting first; accept what is not worse; else the next; else the least bad [DAFL, Alg. 1].

    orders      next comes the nearest by Kendall's distance, the next by name, a random one; `all`: the best of all
    reference   not worse than the last round's model (the paper), or than the best so far
    adjust_on   the clients' validation rows, or their test rows (the paper: it chooses on what it reports)
    tolerance   weightings whose weights differ by no more total variation count as one

    The paper asks about one order after the other. Here all orders that are left are asked about in one exchange: the
    choice is the same, and an exchange takes seconds on a deployment.

    >>> Backtracking(orders="all").asks
    'validation'
    """

    orders: Annotated[Orders, Doc("which order is tried next: the nearest, by name, a random one; `all`: the best")] = (
        "kendall"
    )
    reference: Annotated[Reference, Doc("accept what is not worse than the last model, or than the best so far")] = (
        "last"
    )
    adjust_on: Annotated[SplitName, Doc("which rows decide; the paper chooses on the test rows that it reports")] = (
        "validation"
    )
    tolerance: Annotated[
        float, Interval(ge=0, le=1), Doc("weightings that differ by no more total variation count as one")
    ] = 0.01
    why: ClassVar[Mapping[str, str]] = SEARCH_WHY

    @property
    def needs(self) -> Words:
        """One model, and clients that test candidates on these rows."""
        return frozenset({"shared model", "evaluation", f"{self.adjust_on} rows"})

    @property
    def asks(self) -> SplitName:
        """The rows that decide."""
        return self.adjust_on

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Every order of the recipe's criteria."""
        return orders_of(base)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """The current one, then the others as `orders` says; ties by name, then as listed."""
        others = [weighting for weighting in weightings if weighting != current]
        if self.orders == "random":
            return [current, *(others[place] for place in random.permutation(len(others)))]
        others.sort(key=lambda weighting: weighting.priority)
        if self.orders != "lexicographic":
            others.sort(key=lambda weighting: kendall(current.priority, weighting.priority))
        return [current, *others]

    def choose(self, batch: Batch, job: Job) -> Choice:
        """The candidate that `pick` takes; a single one is taken without asking: there is nothing to compare."""
        evaluator = CandidateEvaluator(batch, job, self.asks)
        if len(evaluator) == 1 and self.reference == "last":
            return evaluator.choice(0)
        reference: float | None = job.view.own_of("search").get("quality" if self.reference == "last" else "best")

        def ask(places: Sequence[int]) -> list[Answer]:
            evaluator.ask(places, before=reference is None and evaluator.before is None)
            known = evaluator.before.accuracy if evaluator.before is not None else reference
            qualities = [evaluator.evaluations[place].accuracy for place in places]
            return [Answer(quality, known is not None and quality >= known) for quality in qualities]

        place = self.pick(range(len(evaluator)), ask)
        accuracy = evaluator.evaluations[place].accuracy
        return evaluator.choice(place, None if np.isnan(accuracy) else accuracy)

    def pick(self, candidates: Sequence[T], ask: AskClients[T]) -> T:
        """The first good one in the order given; where none is good, or `all` are wanted, the best; ties: the earliest.

        Where nobody could answer (the quality is NaN) the current weighting stays.
        """
        # The current weighting goes out alone, since it is usually accepted.
        first = len(candidates) if self.orders == "all" else 1
        tried: list[tuple[T, Answer]] = []
        for chunk in filter(len, (candidates[:first], candidates[first:])):
            tried += zip(chunk, ask(chunk), strict=True)
            good = next((candidate for candidate, answer in tried if answer.good), None)
            if good is not None and self.orders != "all":
                return good
        return max(tried, key=lambda pair: -1.0 if np.isnan(pair[1].quality) else pair[1].quality)[0]
