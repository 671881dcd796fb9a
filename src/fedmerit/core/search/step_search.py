"""Boldest first: weightings and steps tried on clients in one exchange, the boldest that pays is taken.

A server that has the clients' updates can take many steps along them; which one pays, clients that hold validation rows
can say. Candidates are model + length * update + carry * (model - model before), for each step in `steps` and each
weighting that there is to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.search import Choice, Judging, SearchState, Weighting, kendall, orders_of
from fedmerit.core.search.votes import count_change, preferring, vote_weights
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.types import ClientId, Evaluation, SplitName, Vector
from fedmerit.errors import ConfigError, UnknownName

By: TypeAlias = Literal["loss", "accuracy"]
Count: TypeAlias = Literal["mean", "median"]
Among: TypeAlias = tuple[Weighting, ...] | Literal["orders"]

STEPS = ((2.0, 0.9), (1.0, 0.9), (0.5, 0.9), (0.3, 0.9), (1.0, 0.5), (1.0, 0.0), (0.2, 0.8), (0.3, 0.3))
"""Pairs of length and carry from bold to careful, short steps with long memories among them: chosen on seeds of their
own, see docs/results/steps.md."""


@dataclass(frozen=True, slots=True)
class BoldestFirst:
    """Of the candidates, boldest first, the first whose gain is at least `accept` times the best one's.

    The gain of a candidate is by how much the clients that judge it prefer it to the model before the round: the fall
    of the mean loss over their rows, or the rise of accuracy. Where none gains, the least bad is taken.

    steps       pairs (length, carry); none: the recipe's own step
    by          judged by loss or by accuracy
    rungs       only steps whose length and carry are at most so many rungs from those taken last, so that what a round
                learned about bold and careful steps is where the next one starts; None: all steps in every round
    judges      who is asked: `round`, those that took part; so many others, drawn anew each round; None: all
    accept      0: the boldest that is not worse than before; 1: the best
    count       the `mean` of the judges' gains by their rows, none with more than two equal shares and within three
                medians of them all; or the `median`, in which each has one voice
    among       weightings to choose from beside the recipe's own, or `orders`: every order of its criteria
    adjust_on   the clients' validation rows, or their test rows
    tolerance   weightings whose weights differ by no more total variation count as one
    majority    what was taken last stays unless this share of the judges, one voice each, gain more by what would be
                taken; 0: it never stays for that reason

    >>> search = BoldestFirst(steps=((2, 0.9), (1, 0)), accept=0.5)
    >>> search.pick([0.2, 0.3]), search.pick([0.1, 0.3]), search.pick([-0.2, -0.1])
    (0, 1, 1)
    """

    steps: tuple[tuple[float, float], ...] = ()
    by: By = "loss"
    judges: Judging = "round"
    accept: float = 0.5
    count: Count = "mean"
    among: Among = ()
    adjust_on: SplitName = "validation"
    tolerance: float = 0.01
    rungs: int | None = None
    majority: float = 0.0

    def __post_init__(self) -> None:
        for key, value, valid in (("by", self.by, By), ("count", self.count, Count)):
            if value not in get_args(valid):
                raise UnknownName(f"value of search.{key}", str(value), get_args(valid))
        if self.adjust_on not in get_args(SplitName):
            raise UnknownName("value of search.adjust_on", str(self.adjust_on), get_args(SplitName))
        if not 0 <= self.accept <= 1:
            raise ConfigError(f"search.accept is a share of the best candidate's gain, in 0..1; got {self.accept}")
        if not 0 <= self.majority <= 1:
            raise ConfigError(f"search.majority is a share of the judges, in 0..1; got {self.majority}")
        if not 0 <= self.tolerance <= 1:
            raise ConfigError(f"search.tolerance is a total variation, in 0..1; got {self.tolerance}")
        if not (self.judges in ("round", None) or (isinstance(self.judges, int) and self.judges >= 1)):
            raise ConfigError(f'search.judges is "round", or how many clients judge, 1 or more; got {self.judges!r}')
        if len(set(self.steps)) < len(self.steps):
            raise ConfigError(f"search.steps names each step once; got {list(self.steps)}")
        if self.rungs is not None and (self.rungs < 1 or not self.steps):
            raise ConfigError(f"search.rungs is how far to climb among search.steps, 1 or more; got {self.rungs}")
        for length, carry in self.steps:
            HeavyBall(length, carry)

    @property
    def asks(self) -> SplitName:
        """The rows that decide."""
        return self.adjust_on

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        """Each weighting with each step, the recipe's own first."""
        among = orders_of(own) if self.among == "orders" else tuple(dict.fromkeys((own, *self.among)))
        steps = [HeavyBall(length, carry) for length, carry in self.steps]
        return tuple(replace(one, step=step) for one in among for step in steps) if steps else among

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """The boldest step first; of the same step, the weighting nearest to the one taken last."""
        return sorted(
            (one for one in weightings if self._is_near(one.step, current.step)),
            key=lambda one: (-one.step.reach if one.step else 0.0, kendall(current.priority, one.priority)),
        )

    def _is_near(self, step: HeavyBall | None, last: HeavyBall | None) -> bool:
        """Whether length and carry are within the rungs from the last step's; before the first, from the plain step."""
        if self.rungs is None or step is None:
            return True
        last = last or HeavyBall(*min(self.steps, key=lambda pair: (abs(math.log(pair[0])), pair[1])))
        lengths, carries = (sorted({pair[i] for pair in self.steps}) for i in (0, 1))
        return (
            abs(lengths.index(step.length) - lengths.index(last.length)) <= self.rungs
            and abs(carries.index(step.carry) - carries.index(last.carry)) <= self.rungs
        )

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        """One exchange about all candidates and the model before; a single one is taken without asking."""
        if len(panel) == 1:
            return Choice(0)
        panel.ask(range(len(panel)), self._asked(panel), before=True, losses=self.by == "loss")
        assert panel.before is not None  # it was asked for
        return Choice(self.decide(panel.before, [panel.evaluations[place] for place in range(len(panel))], panel.last))

    def decide(self, before: Evaluation, candidates: Sequence[Evaluation], last: int | None = None) -> int:
        """The place of the candidate that `pick` takes, or of the `last` one where too few judges would change it."""
        place = self.pick([self.gain(before, candidate) for candidate in candidates])
        if not self.majority or last is None or place == last:
            return place
        for_it = preferring(*(self._gains(before, candidates[one])[0] for one in (place, last)))
        return place if for_it >= self.majority else last

    def _asked(self, panel: Panel) -> Sequence[ClientId] | None:
        if self.judges == "round":
            return panel.took_part
        if self.judges is None:
            return None
        took_part = set(panel.took_part)
        others = [client for client in panel.turn if client not in took_part]
        return [*others, *(client for client in panel.turn if client in took_part)][: self.judges]

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
