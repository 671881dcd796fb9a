"""Search: which way to weigh a round is taken, among orders of the criteria or any other ways (SPEC A2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np

from fedmerit.core.scores import Score
from fedmerit.core.types import Normalise, SplitName, Vector
from fedmerit.core.weights import total_variation
from fedmerit.errors import ConfigError, UnknownName

Orders: TypeAlias = Literal["kendall", "lexicographic", "random", "all"]
Reference: TypeAlias = Literal["last", "best_so_far"]
Exchange: TypeAlias = Literal["batch", "lazy"]
MOST_CRITERIA = 6
"""Seven criteria would have 5,040 orders."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Weighting:
    """One way to weigh a round: the criteria in priority order, the score and how columns are normalised."""

    priority: tuple[str, ...]
    score: Score
    normalise: Normalise

    def label(self, usual: Weighting) -> str:
        """What people see: the order, and what else is unlike the recipe's own way."""
        score = "" if self.score == usual.score else f" by {self.score!r}"
        normalise = "" if self.normalise == usual.normalise else f", {self.normalise}"
        return " > ".join(self.priority) + score + normalise


@dataclass(frozen=True, slots=True)
class Answer:
    """What the clients say of a candidate: its accuracy, and whether it may be accepted."""

    quality: float
    good: bool


Ask: TypeAlias = Callable[[Sequence[T]], Sequence[Answer]]
"""Ask the clients about one or several candidates, in one exchange."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a search knows from earlier rounds: the way taken last, the model's accuracy then, the best so far."""

    way: str | None = None
    quality: float | None = None
    best: float | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """The recipe's own way in every round; nobody is asked."""

    def ways(self, own: Weighting) -> tuple[Weighting, ...]:
        """The one."""
        return (own,)


@dataclass(frozen=True, slots=True)
class Backtracking:
    """DAFL (SPEC A2): the current way first; accept what is not worse; else the next; else the least bad.

    orders      next comes the nearest by Kendall's distance, the next by name, a random one; `all`: the best of all
    reference   not worse than the last round's model (the paper), or than the best so far
    exchange    `batch`: all that are left in one exchange; `lazy`: one by one (the paper). The choice is the same
    adjust_on   the clients' validation rows, or their test rows (the paper: it chooses on what it reports)
    tolerance   ways whose weights differ by no more total variation count as one
    judges      how many clients, drawn anew each round, are asked; None: all. More are asked while it is undecided, at
                `confidence`, whether a candidate is worse than the model before the round (not with orders = "all")
    among       ways to choose from instead of the orders of the recipe's criteria
    """

    orders: Orders = "kendall"
    reference: Reference = "last"
    exchange: Exchange = "batch"
    adjust_on: SplitName = "validation"
    tolerance: float = 0.01
    judges: int | None = None
    confidence: float = 0.95
    among: tuple[Weighting, ...] = ()

    def __post_init__(self) -> None:
        for what, value, valid in (
            ("orders", self.orders, Orders),
            ("reference", self.reference, Reference),
            ("exchange", self.exchange, Exchange),
            ("adjust_on", self.adjust_on, SplitName),
        ):
            if value not in get_args(valid):
                raise UnknownName(f"value of search.{what}", str(value), get_args(valid))
        if not 0 <= self.tolerance <= 1:
            raise ConfigError(f"search.tolerance is a total variation, in 0..1; got {self.tolerance}")
        if self.judges is not None and self.judges < 2:
            raise ConfigError(f"search.judges is at least 2, since their answers are compared; got {self.judges}")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"search.confidence lies between 0 and 1; got {self.confidence}")
        if self.judges is not None and self.reference == "best_so_far":
            raise ConfigError(
                'search.judges compare with the model before the round; reference = "best_so_far" needs all clients'
            )

    def ways(self, own: Weighting) -> tuple[Weighting, ...]:
        """`among`, or every order of the recipe's criteria."""
        if self.among:
            return tuple(dict.fromkeys((own, *self.among)))
        if len(own.priority) > MOST_CRITERIA:
            raise ConfigError(
                f"a search goes through every order of at most {MOST_CRITERIA} criteria; got {len(own.priority)}; "
                "name the ways to choose from with search.among"
            )
        others = (Weighting(order, own.score, own.normalise) for order in permutations(sorted(own.priority)))
        return tuple(dict.fromkeys((own, *others)))

    def visiting(self, current: Weighting, ways: Sequence[Weighting], random: np.random.Generator) -> list[Weighting]:
        """The current way, then the others as `orders` says; ties by name, then as listed."""
        others = [way for way in ways if way != current]
        if self.orders == "random":
            return [current, *(others[place] for place in random.permutation(len(others)))]
        others.sort(key=lambda way: way.priority)
        if self.orders != "lexicographic":
            others.sort(key=lambda way: kendall(current.priority, way.priority))
        return [current, *others]

    def choose(self, candidates: Sequence[T], ask: Ask[T]) -> T:
        """The first good one in the order given; where none is good, or `all` are wanted, the best; ties: the earliest.

        Where nobody could answer (the quality is NaN) the current way stays.
        """
        rest = list(candidates)
        tried: list[tuple[T, Answer]] = []
        while rest:
            size = self._next(len(tried), len(rest))
            tried += zip(rest[:size], ask(rest[:size]), strict=True)
            rest = rest[size:]
            good = next((candidate for candidate, answer in tried if answer.good), None)
            if good is not None and self.orders != "all":
                return good
        best = max(tried, key=lambda one: -1.0 if np.isnan(one[1].quality) else one[1].quality)
        return best[0]

    def _next(self, asked: int, left: int) -> int:
        """How many candidates go out together: the current one alone, since it is usually accepted."""
        if self.exchange == "lazy" or (asked == 0 and self.orders != "all"):
            return 1
        return left


Search: TypeAlias = Fixed | Backtracking


def kendall(one: Sequence[str], other: Sequence[str]) -> int:
    """Pairs that the two orders rank differently, and criteria that only one of them names."""
    shared = [name for name in one if name in other]
    places = {name: place for place, name in enumerate(other)}
    swapped = sum(places[first] > places[second] for first, second in combinations(shared, 2))
    return swapped + len(set(one) ^ set(other))


def distinct(weightings: Sequence[Vector], tolerance: float) -> list[int]:
    """For each weighting the place of the first one that it counts as: one within the tolerance, or itself."""
    firsts: list[int] = []
    same = []
    for place, weights in enumerate(weightings):
        near = (first for first in firsts if total_variation(weights, weightings[first]) <= tolerance)
        first = next(near, place)
        if first == place:
            firsts.append(place)
        same.append(first)
    return same
