"""Step search: weightings and server steps tested by clients in one exchange; the boldest that pays is taken.

A server that has the clients' updates can take many steps along them; which one pays, clients that hold validation rows
can say. Candidates are model + lr * update + momentum * (model - model before), for each step in `steps` and each
weighting that there is to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import ACCOUNTED, NO_WORDS, Doc, Words, part
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import SEARCH_WHY, Choice, Judging, Weighting, kendall, orders_of, remember_choice
from fedmerit.core.search.votes import count_change, preferring, vote_weights
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.server.private_sum import client_gains
from fedmerit.core.server.server import Batch
from fedmerit.core.types import ClientId, Evaluation, Matrix, SplitName, Vector
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.models.shared import Job

By: TypeAlias = Literal["loss", "accuracy"]
Count: TypeAlias = Literal["mean", "median"]
Among: TypeAlias = tuple[Weighting, ...] | Literal["orders"]

STEPS = ((2.0, 0.9), (1.0, 0.9), (0.5, 0.9), (0.3, 0.9), (1.0, 0.5), (1.0, 0.0), (0.2, 0.8), (0.3, 0.3))
"""Pairs of lr and momentum from bold to careful, short steps with long memories among them: chosen on seeds of their
own, see docs/results/steps.md."""


@runtime_checkable
class CountsGains(Protocol):
    """An aggregator that counts what clients gain by the candidates, in place of votes."""

    def count_gains(self, gains: Matrix, batch: Batch) -> Vector:
        """The gain of each candidate by gains (clients, candidates)."""


@part("search", "steps")
class StepSearch:
    """Of the candidates, boldest first, the first whose gain is at least `accept` times the best one's.

    The gain of a candidate is by how much the clients that judge it prefer it to the model before the round: the fall
    of the mean loss over their rows, or the rise of accuracy. Where none gains, the least bad is taken.

    steps       pairs (lr, momentum); none: the recipe's own step
    by          judged by loss or by accuracy
    max_change  only steps whose lr and momentum are at most this many levels from those taken last, so that what a
                round learned is where the next one starts; None: all steps in every round
    judges      who is asked: `round`, those that took part; so many others, drawn anew each round; None: all
    accept      0: the boldest that is not worse than before; 1: the best
    count       the `mean` of the judges' gains by their rows, none with more than two equal shares and within three
                medians of them all; or the `median`, in which each has one voice
    among       weightings to choose from beside the recipe's own, or `orders`: every order of its criteria
    adjust_on   the clients' validation rows, or their test rows
    tolerance   weightings whose weights differ by no more total variation count as one
    majority    what was taken last stays unless this share of the judges, one voice each, gain more by what would be
                taken; 0: it never stays for that reason

    >>> search = StepSearch(steps=((2, 0.9), (1, 0)), accept=0.5)
    >>> search.pick([0.2, 0.3]), search.pick([0.1, 0.3]), search.pick([-0.2, -0.1])
    (0, 1, 1)
    """

    steps: Annotated[
        tuple[tuple[float, float], ...], Doc("pairs [lr, momentum] to choose from; none: the recipe's own step")
    ] = ()
    by: Annotated[By, Doc("judge by loss or by accuracy")] = "loss"
    judges: Annotated[
        Judging, Interval(ge=1), Doc("`round`: those that took part; a number of others, drawn anew; None: all")
    ] = "round"
    accept: Annotated[
        float, Interval(ge=0, le=1), Doc("the boldest candidate with this share of the best one's gain is taken")
    ] = 0.5
    count: Annotated[Count, Doc("the judges' gains by their rows, `mean`, or one vote each, `median`")] = "mean"
    among: Annotated[Among, Doc("more weightings to choose from, or `orders`: every order of the criteria")] = ()
    adjust_on: Annotated[SplitName, Doc("which rows decide")] = "validation"
    tolerance: Annotated[
        float, Interval(ge=0, le=1), Doc("weightings that differ by no more total variation count as one")
    ] = 0.01
    max_change: Annotated[
        int | None, Interval(ge=1), Doc("try only steps at most this many levels of lr and momentum from the last")
    ] = None
    majority: Annotated[
        float, Interval(ge=0, le=1), Doc("the last choice stays unless this share of the judges gain more by another")
    ] = 0.0

    after = remember_choice
    why: ClassVar[Mapping[str, str]] = SEARCH_WHY

    def __post_init__(self) -> None:
        if len(set(self.steps)) < len(self.steps):
            raise ConfigError(f"search.steps names each step once (got {list(self.steps)})")
        if self.max_change is not None and not self.steps:
            raise ConfigError("search.max_change has no effect without search.steps")
        for lr, momentum in self.steps:
            HeavyBall(lr, momentum)

    @property
    def gives(self) -> Words:
        """Accounted where it only varies the step and sums the answers of the round's own clients."""
        summed = (self.judges, self.count, self.max_change, self.majority) == ("round", "mean", None, 0.0)
        return ACCOUNTED if self.steps and not self.among and summed else NO_WORDS

    @property
    def needs(self) -> Words:
        """One model, clients that test candidates, and the plain step, in place of which it tries others."""
        words = {"shared model", "evaluation", f"{self.adjust_on} rows"}
        words |= {"noisy answers"} if self.gives else set()  # others are refused in a private run
        return frozenset(
            words | ({"losses"} if self.by == "loss" else set()) | ({"plain step"} if self.steps else set())
        )

    @property
    def asks(self) -> SplitName:
        """The rows that decide."""
        return self.adjust_on

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Each weighting with each step, the recipe's own first."""
        among = orders_of(base) if self.among == "orders" else tuple(dict.fromkeys((base, *self.among)))
        steps = [HeavyBall(lr, momentum) for lr, momentum in self.steps]
        return tuple(replace(one, optimizer=step) for one in among for step in steps) if steps else among

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """The boldest step first; of the same step, the weighting nearest to the one taken last."""
        return sorted(
            (one for one in weightings if self._is_near(one.optimizer, current.optimizer)),
            key=lambda one: (
                -one.optimizer.effective_lr if one.optimizer else 0.0,
                kendall(current.priority, one.priority),
            ),
        )

    def _is_near(self, step: HeavyBall | None, last: HeavyBall | None) -> bool:
        """Whether lr and momentum are within `max_change` levels of the last step's; at first, of the plain step's."""
        if self.max_change is None or step is None:
            return True
        last = last or HeavyBall(*min(self.steps, key=lambda pair: (abs(math.log(pair[0])), pair[1])))
        rates, momenta = (sorted({pair[i] for pair in self.steps}) for i in (0, 1))
        return (
            abs(rates.index(step.lr) - rates.index(last.lr)) <= self.max_change
            and abs(momenta.index(step.momentum) - momenta.index(last.momentum)) <= self.max_change
        )

    def choose(self, batch: Batch, job: Job) -> Choice:
        """One exchange about all candidates and the model before; a single one is taken without asking.

        An aggregator that noises answers (`PrivateSum`) counts them; then what is tried depends only on what was
        released, so that a round without clients does not show.
        """
        evaluator, aggregator = CandidateEvaluator(batch, job, self.asks), job.recipe.server.aggregator
        places, by_loss = range(len(evaluator)), self.by == "loss"
        if isinstance(aggregator, CountsGains):
            gains = np.empty((0, len(evaluator)))
            if job.cohort.ids:
                evaluator.ask(places, job.cohort.ids, before=True, losses=by_loss)
                assert evaluator.before is not None  # it was asked for
                gains = client_gains(self.by, evaluator.before, [evaluator.evaluations[place] for place in places])
            return evaluator.choice(self.pick(aggregator.count_gains(gains, batch).tolist()))
        if len(evaluator) == 1:
            return evaluator.choice(0)
        evaluator.ask(places, self._asked(evaluator), before=True, losses=by_loss)
        assert evaluator.before is not None  # it was asked for
        answers = [evaluator.evaluations[place] for place in places]
        return evaluator.choice(self.decide(evaluator.before, answers, evaluator.last))

    def decide(self, before: Evaluation, candidates: Sequence[Evaluation], last: int | None = None) -> int:
        """The place of the candidate that `pick` takes, or of the `last` one where too few judges would change it."""
        place = self.pick([self.gain(before, candidate) for candidate in candidates])
        if not self.majority or last is None or place == last:
            return place
        for_it = preferring(*(self._gains(before, candidates[one])[0] for one in (place, last)))
        return place if for_it >= self.majority else last

    def _asked(self, evaluator: CandidateEvaluator) -> Sequence[ClientId] | None:
        if self.judges == "round":
            return evaluator.took_part
        if self.judges is None:
            return None
        took_part = set(evaluator.took_part)
        others = [client for client in evaluator.order if client not in took_part]
        return [*others, *(client for client in evaluator.order if client in took_part)][: self.judges]

    def gain(self, before: Evaluation, candidate: Evaluation) -> float:
        """By how much the judges prefer the candidate to the model before; NaN where nobody could say."""
        gains, sizes = self._gains(before, candidate)
        if not len(gains):
            return math.nan
        if self.count == "median":
            return float(np.median(gains))
        return -count_change(-gains, np.zeros(len(gains)), vote_weights(sizes))

    def _gains(self, before: Evaluation, candidate: Evaluation) -> tuple[Vector, Vector]:
        """The gain of each judge that answered, per row, and its rows; none where losses are unknown."""
        answered = (before.sizes > 0) & (candidate.sizes > 0)
        sizes = candidate.sizes[answered].astype(np.float64)
        if self.by == "accuracy":
            old, new = (-one.correct[answered] / sizes for one in (before, candidate))
        elif before.losses is None or candidate.losses is None:
            return np.zeros(0), np.zeros(0)
        else:
            old, new = (one.losses[answered] / sizes for one in (before, candidate) if one.losses is not None)
        return np.asarray(old - new), sizes

    def pick(self, gains: Sequence[float]) -> int:
        """The place of the candidate that is taken; where nobody could answer, the last: the most careful one."""
        known = [gain for gain in gains if not math.isnan(gain)]
        if not known:
            return len(gains) - 1
        best = max(known)
        if best < 0:
            return gains.index(best)
        return next(place for place, gain in enumerate(gains) if gain >= self.accept * best)
