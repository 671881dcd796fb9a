"""Search: which weighting and step a round takes; the protocol, and what its searches share.

A search proposes weightings, puts the candidates of a round to a `Panel` of clients, and ends with one of them. `Fixed`
asks nobody; `backtracking` has DAFL's, `boldest` the search over steps; a user may bring another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Literal, Protocol, TypeAlias

import numpy as np

from fedmerit.core.search.evaluator import Panel
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.types import Normalise, SplitName, Vector
from fedmerit.core.weights.scores import Score
from fedmerit.core.weights.weigh import total_variation
from fedmerit.errors import ConfigError

Judging: TypeAlias = int | Literal["round"] | None
"""Who is asked: so many clients, those that took part in the round, or all."""

MOST_CRITERIA = 6
"""Seven criteria would have 5,040 orders."""


@dataclass(frozen=True, slots=True)
class Weighting:
    """One way to weigh a cohort: the criteria in priority order, the score and how columns are normalised.

    It may carry a `step` of its own; without one the recipe's step is taken.

    >>> from fedmerit import Product
    >>> Weighting(("LD", "DS"), Product(), "max").label(usual=Weighting(("DS", "LD"), Product(), "sum"))
    'LD > DS, max'
    """

    priority: tuple[str, ...]
    score: Score
    normalise: Normalise
    step: HeavyBall | None = None

    def label(self, usual: Weighting) -> str:
        """What people see: the order, and what else is unlike the recipe's own weighting."""
        score = "" if self.score == usual.score else f" by {self.score!r}"
        normalise = "" if self.normalise == usual.normalise else f", {self.normalise}"
        step = f", length {self.step.length:g}, carry {self.step.carry:g}" if self.step else ""
        return " > ".join(self.priority) + score + normalise + step


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a search knows from earlier rounds: the weighting taken last, the model's accuracy then, the best so far."""

    weighting: str | None = None
    quality: float | None = None
    best: float | None = None

    def after(self, weighting: str, quality: float | None) -> SearchState:
        """With one more round."""
        known = [value for value in (self.best, quality) if value is not None]
        return SearchState(weighting, quality, max(known, default=None))


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that a search takes, and the accuracy by which it decided; None where it is not known exactly."""

    place: int
    quality: float | None = None


class Search(Protocol):
    """How a round's weighting is chosen.

    asks        which rows of the clients decide; None: nobody is asked
    judges      how many clients are asked first, or `round`: those that took part; None: all
    tolerance   weightings whose weights differ by no more total variation count as one

    `Fixed`, `Backtracking` and `BoldestFirst` are three; a recipe takes any value with these members.

    >>> from fedmerit import Backtracking, Product
    >>> own = Weighting(("DS", "LD"), Product(), "max")
    >>> [weighting.label(own) for weighting in Backtracking().weightings(own)]
    ['DS > LD', 'LD > DS']
    """

    @property
    def asks(self) -> SplitName | None: ...  # noqa: D102
    @property
    def judges(self) -> Judging: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        """All that it may take, the recipe's own first."""

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        """Those to consider this round, in the order of trying; `current` was taken last."""

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        """One of the panel's candidates, after asking as many clients about as many of them as it takes."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The recipe's own weighting in every round; nobody is asked.

    >>> Fixed().asks is None
    True
    """

    asks: None = None
    judges: None = None
    tolerance: float = 0.0

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        """The one."""
        return (own,)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        """The one."""
        return (current,)

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        """The one."""
        return Choice(0)


def orders_of(own: Weighting) -> tuple[Weighting, ...]:
    """Every order of a weighting's criteria, its own first."""
    if len(own.priority) > MOST_CRITERIA:
        raise ConfigError(
            f"a search goes through every order of at most {MOST_CRITERIA} criteria; got {len(own.priority)}; "
            "name the weightings to choose from with search.among"
        )
    others = (replace(own, priority=order) for order in permutations(sorted(own.priority)))
    return tuple(dict.fromkeys((own, *others)))


def kendall(one: Sequence[str], other: Sequence[str]) -> int:
    """Pairs that the two orders rank differently, and criteria that only one of them names."""
    shared = [name for name in one if name in other]
    places = {name: place for place, name in enumerate(other)}
    swapped = sum(places[first] > places[second] for first, second in combinations(shared, 2))
    return swapped + len(set(one) ^ set(other))


def distinct(
    weightings: Sequence[Vector], tolerance: float, steps: Sequence[HeavyBall | None] | None = None
) -> list[int]:
    """For each weighting the place of the first that it counts as: one within tolerance with its step, or itself."""
    firsts: list[int] = []
    same = []
    for place, weights in enumerate(weightings):
        alike = firsts if steps is None else [first for first in firsts if steps[first] == steps[place]]
        near = (first for first in alike if total_variation(weights, weightings[first]) <= tolerance)
        first = next(near, place)
        if first == place:
            firsts.append(place)
        same.append(first)
    return same
