"""Backtracking: the search for an order of the criteria, by the clients' accuracy [DAFL, Alg. 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
import scipy

from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.search import Choice, SearchState, Weighting, kendall, orders_of
from fedmerit.core.types import Evaluation, SplitName
from fedmerit.errors import ConfigError, UnknownName

Orders: TypeAlias = Literal["kendall", "lexicographic", "random", "all"]
Reference: TypeAlias = Literal["last", "best_so_far"]
Exchange: TypeAlias = Literal["batch", "lazy"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the clients say of a candidate: its accuracy, and whether it may be accepted."""

    quality: float
    good: bool


Ask: TypeAlias = Callable[[Sequence[T]], Sequence[Answer]]
"""Ask the clients about one or several candidates, in one exchange."""


@dataclass(frozen=True, slots=True)
class Backtracking:
    """The current weighting first; accept what is not worse; else the next; else the least bad [DAFL, Alg. 1].

    orders      next comes the nearest by Kendall's distance, the next by name, a random one; `all`: the best of all
    reference   not worse than the last round's model (the paper), or than the best so far
    exchange    `batch`: all that are left in one exchange; `lazy`: one by one (the paper). The choice is the same
    adjust_on   the clients' validation rows, or their test rows (the paper: it chooses on what it reports)
    tolerance   weightings whose weights differ by no more total variation count as one
    judges      how many clients, drawn anew each round, are asked; None: all. More are asked while it is undecided, at
                `confidence`, whether a candidate is worse than the model before the round (not with orders = "all")
    among       weightings to choose from instead of the orders of the recipe's criteria

    >>> Backtracking(orders="all").asks
    'validation'
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
        for key, value, valid in (
            ("orders", self.orders, Orders),
            ("reference", self.reference, Reference),
            ("exchange", self.exchange, Exchange),
            ("adjust_on", self.adjust_on, SplitName),
        ):
            if value not in get_args(valid):
                raise UnknownName(f"value of search.{key}", str(value), get_args(valid))
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

    @property
    def asks(self) -> SplitName:
        """The rows that decide."""
        return self.adjust_on

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        """`among`, or every order of the recipe's criteria."""
        return tuple(dict.fromkeys((own, *self.among))) if self.among else orders_of(own)

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

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        """The candidate that `pick` takes; a single one is taken without asking, since there is nothing to compare."""
        if len(panel) == 1 and self.reference == "last":
            return Choice(0)
        place = self.pick(range(len(panel)), _Judging(self, panel, self._reference(state)).ask)
        accuracy = panel.evaluations[place].accuracy
        return Choice(place, None if self.judges is not None or np.isnan(accuracy) else accuracy)

    def pick(self, candidates: Sequence[T], ask: Ask[T]) -> T:
        """The first good one in the order given; where none is good, or `all` are wanted, the best; ties: the earliest.

        Where nobody could answer (the quality is NaN) the current weighting stays.
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
        best = max(tried, key=lambda pair: -1.0 if np.isnan(pair[1].quality) else pair[1].quality)
        return best[0]

    def _next(self, asked: int, left: int) -> int:
        """How many candidates go out together: the current one alone, since it is usually accepted."""
        if self.exchange == "lazy" or (asked == 0 and self.orders != "all"):
            return 1
        return left

    def _reference(self, state: SearchState) -> float | None:
        """What a candidate must reach; None: the accuracy of the model before the round, which is then asked for."""
        if self.judges is not None:
            return None
        return state.quality if self.reference == "last" else state.best


class _Judging:
    """Backtracking's questions to a panel: who is asked, and when a candidate is good enough."""

    def __init__(self, search: Backtracking, panel: Panel, reference: float | None) -> None:
        self._search, self._panel, self._reference = search, panel, reference
        self._asked = min(search.judges or len(panel.turn), len(panel.turn))

    @property
    def _everybody(self) -> bool:
        """Whether all clients have been asked, so that the answers are exact."""
        return self._asked == len(self._panel.turn)

    def ask(self, places: Sequence[int]) -> list[Answer]:
        """The clients' answers; more judges are asked while a candidate is neither better nor worse for sure."""
        panel, search = self._panel, self._search
        clients = None if self._everybody else panel.turn[: self._asked]
        panel.ask(places, clients, before=self._reference is None and panel.before is None)
        while search.judges and search.orders != "all" and self._undecided(places):
            more = panel.turn[self._asked : 2 * self._asked]
            self._asked += len(more)
            panel.ask(places, more, before=True)
        return [Answer(panel.evaluations[place].accuracy, self._good(place)) for place in places]

    def _good(self, place: int) -> bool:
        before = self._panel.before
        if self._search.judges and before is not None:
            return self._not_worse(place) is True
        reference = before.accuracy if self._reference is None and before else self._reference
        return reference is not None and self._panel.evaluations[place].accuracy >= reference

    def _undecided(self, places: Sequence[int]) -> bool:
        return not self._everybody and any(self._not_worse(place) is None for place in places)

    def _not_worse(self, place: int) -> bool | None:
        panel = self._panel
        assert panel.before is not None  # judges compare with it, so it was asked for
        share = self._asked / len(panel.turn)
        return not_worse(panel.evaluations[place], panel.before, share, self._search.confidence)


def not_worse(candidate: Evaluation, before: Evaluation, share: float, confidence: float) -> bool | None:
    """Whether the candidate's accuracy is at least that of the model before; None: undecided at this confidence.

    `share` of the clients were asked. The difference d = sum(right_k - right_before_k) / sum(n_k) is a ratio of sums
    over the judges; with e_k = (right_k - right_before_k) - d * n_k its variance is about
    (1 - share) * n / (n - 1) * sum(e_k ** 2) / sum(n_k) ** 2, and 0 when everybody was asked.
    """
    asked = candidate.sizes > 0
    gains, sizes = (candidate.correct - before.correct)[asked].astype(np.float64), candidate.sizes[asked]
    total, judges = int(sizes.sum()), len(sizes)
    if not total:
        return None if share < 1 else False
    difference = gains.sum() / total
    if share >= 1:
        return bool(difference >= 0)
    if judges < 2:
        return None
    spread = np.sqrt((1 - share) * judges / (judges - 1) * np.square(gains - difference * sizes).sum()) / total
    reach = float(scipy.stats.norm.ppf((1 + confidence) / 2)) * spread
    if difference - reach >= 0:
        return True
    return False if difference + reach < 0 else None
