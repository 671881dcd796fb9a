"""Backtracking: the search for an order of the criteria, by the clients' accuracy [DAFL, Alg. 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np
import scipy
from annotated_types import Interval

from fedmerit.core.parts import Doc, Words, part
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import SEARCH_WHY, Choice, Weighting, kendall, orders_of, remember_choice
from fedmerit.core.server.server import Batch
from fedmerit.core.types import Evaluation, Own, SplitName
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.models.shared import Job

Orders: TypeAlias = Literal["kendall", "lexicographic", "random", "all"]
Reference: TypeAlias = Literal["last", "best_so_far"]
Exchange: TypeAlias = Literal["batch", "lazy"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the clients say of a candidate: its accuracy, and whether it may be accepted."""

    quality: float
    good: bool


AskClients: TypeAlias = Callable[[Sequence[T]], Sequence[Answer]]
"""Ask the clients about one or several candidates, in one exchange."""


@part("search", "backtracking")
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

    orders: Annotated[Orders, Doc("which order is tried next: the nearest, by name, a random one; `all`: the best")] = (
        "kendall"
    )
    reference: Annotated[Reference, Doc("accept what is not worse than the last model, or than the best so far")] = (
        "last"
    )
    exchange: Annotated[Exchange, Doc("ask about all orders that are left in one exchange, or one by one")] = "batch"
    adjust_on: Annotated[SplitName, Doc("which rows decide; the paper chooses on the test rows that it reports")] = (
        "validation"
    )
    tolerance: Annotated[
        float, Interval(ge=0, le=1), Doc("weightings that differ by no more total variation count as one")
    ] = 0.01
    judges: Annotated[int | None, Interval(ge=2), Doc("ask this many clients, drawn anew each round; default: all")] = (
        None
    )
    confidence: Annotated[
        float, Interval(gt=0, lt=1), Doc("how sure judges must be that a candidate is worse, or is not")
    ] = 0.95
    among: Annotated[tuple[Weighting, ...], Doc("weightings to choose from in place of orders")] = ()

    after = remember_choice
    why: ClassVar[Mapping[str, str]] = SEARCH_WHY

    def __post_init__(self) -> None:
        if self.judges is not None and self.reference == "best_so_far":
            raise ConfigError(
                'search.judges compare with the model before the round; reference = "best_so_far" needs all clients'
            )

    @property
    def needs(self) -> Words:
        """One model, and clients that test candidates on these rows."""
        return frozenset({"shared model", "evaluation", f"{self.adjust_on} rows"})

    @property
    def asks(self) -> SplitName:
        """The rows that decide."""
        return self.adjust_on

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """`among`, or every order of the recipe's criteria."""
        return tuple(dict.fromkeys((base, *self.among))) if self.among else orders_of(base)

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
        state = job.view.own_of("search")
        place = self.pick(range(len(evaluator)), _Judging(self, evaluator, self._reference(state)).ask)
        accuracy = evaluator.evaluations[place].accuracy
        return evaluator.choice(place, None if self.judges is not None or np.isnan(accuracy) else accuracy)

    def pick(self, candidates: Sequence[T], ask: AskClients[T]) -> T:
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

    def _reference(self, state: Own) -> float | None:
        """What a candidate must reach; None: the accuracy of the model before the round, which is then asked for."""
        if self.judges is not None:
            return None
        return state.get("quality" if self.reference == "last" else "best")


class _Judging:
    """Backtracking's questions to an evaluator: who is asked, and when a candidate is good enough."""

    def __init__(self, search: Backtracking, evaluator: CandidateEvaluator, reference: float | None) -> None:
        self._search, self._evaluator, self._reference = search, evaluator, reference
        self._asked = min(search.judges or len(evaluator.order), len(evaluator.order))

    @property
    def _everybody(self) -> bool:
        """Whether all clients have been asked, so that the answers are exact."""
        return self._asked == len(self._evaluator.order)

    def ask(self, places: Sequence[int]) -> list[Answer]:
        """The clients' answers; more judges are asked while a candidate is neither better nor worse for sure."""
        evaluator, search = self._evaluator, self._search
        clients = None if self._everybody else evaluator.order[: self._asked]
        evaluator.ask(places, clients, before=self._reference is None and evaluator.before is None)
        while search.judges and search.orders != "all" and self._undecided(places):
            more = evaluator.order[self._asked : 2 * self._asked]
            self._asked += len(more)
            evaluator.ask(places, more, before=True)
        return [Answer(evaluator.evaluations[place].accuracy, self._good(place)) for place in places]

    def _good(self, place: int) -> bool:
        before = self._evaluator.before
        if self._search.judges and before is not None:
            return self._not_worse(place) is True
        reference = before.accuracy if self._reference is None and before else self._reference
        return reference is not None and self._evaluator.evaluations[place].accuracy >= reference

    def _undecided(self, places: Sequence[int]) -> bool:
        return not self._everybody and any(self._not_worse(place) is None for place in places)

    def _not_worse(self, place: int) -> bool | None:
        evaluator = self._evaluator
        assert evaluator.before is not None  # judges compare with it, so it was asked for
        share = self._asked / len(evaluator.order)
        return not_worse(evaluator.evaluations[place], evaluator.before, share, self._search.confidence)


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
