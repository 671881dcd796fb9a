"""Step search: clients test several server steps in one exchange; the largest step that pays is used.

The server can take many steps along the clients' updates; clients with validation rows measure which one pays.
Candidates are model + lr * update + momentum * (model - model before), for each step in `STEPS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedmerit.core.models.shared import Job
from fedmerit.core.parts import Words, part
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import SEARCH_WHY, Choice, Weighting
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.server.server import Batch
from fedmerit.core.types import Evaluation, SplitName

STEPS = ((2.0, 0.9), (1.0, 0.9), (0.5, 0.9), (0.3, 0.9), (1.0, 0.5), (1.0, 0.0), (0.2, 0.8), (0.3, 0.3))
"""Pairs of lr and momentum from the largest step to the smallest: chosen on separate seeds."""
ACCEPT = 0.8
"""The largest step with this share of the best gain is used: 0 would use any step that gains, 1 only the best."""


@part("search", "steps")
class StepSearch:
    """Use the largest step whose gain is at least 0.8 times the best gain.

    The gain of a candidate is the median, over the clients of the round, of its improvement on a client's rows over the
    model before the round: the fall of the mean loss, or the rise of `run.measure` if it is set. The median gives each
    client one vote, whatever it claims. If no candidate gains, the least bad is used.

    >>> search = StepSearch()
    >>> search.pick([0.25, 0.3]), search.pick([0.2, 0.3]), search.pick([-0.2, -0.1])
    (0, 1, 1)
    """

    asks: ClassVar[SplitName] = "validation"
    tolerance: ClassVar[float] = 0.0  # all candidates have the same weights: only equal steps count as one
    needs: ClassVar[Words] = frozenset({"shared model", "evaluation", "plain step", "losses", "validation rows"})
    why: ClassVar[Mapping[str, str]] = {**SEARCH_WHY, "validation rows": "set task.validation = 0.1"}

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Return the recipe's weighting with each step."""
        return tuple(replace(base, optimizer=HeavyBall(lr, momentum)) for lr, momentum in STEPS)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> list[Weighting]:
        """Return the largest step first."""
        return sorted(weightings, key=lambda one: -one.optimizer.effective_lr if one.optimizer else 0.0)

    def choose(self, batch: Batch, job: Job) -> Choice:
        """Ask about all candidates and the model before in one exchange; a single candidate needs none."""
        evaluator = CandidateEvaluator(batch, job, self.asks)
        if len(evaluator) == 1:
            return evaluator.choice(0)
        places = range(len(evaluator))
        evaluator.ask(places, job.cohort.fresh().ids, before=True, losses=job.view.host.measure is None)
        assert evaluator.before is not None  # requested above
        gains = [self.gain(evaluator.before, evaluator.evaluations[place]) for place in places]
        return evaluator.choice(self.pick(gains))

    def gain(self, before: Evaluation, candidate: Evaluation) -> float:
        """Median gain over the clients that answered; NaN if nobody did, or if losses are unknown."""
        answered = (before.sizes > 0) & (candidate.sizes > 0)
        if before.values is not None and candidate.values is not None:
            gains = (candidate.values - before.values)[answered]
            return float(np.nanmedian(gains)) if not np.isnan(gains).all() else math.nan
        if before.losses is None or candidate.losses is None or not answered.any():
            return math.nan
        falls = (
            before.losses[answered] / before.sizes[answered] - candidate.losses[answered] / candidate.sizes[answered]
        )
        return float(np.median(falls))

    def pick(self, gains: Sequence[float]) -> int:
        """Return the place of the chosen candidate; if nobody answered, the last: the smallest step."""

        finite = [gain for gain in gains if not math.isnan(gain)]
        if not finite:
            return len(gains) - 1
        best = max(finite)
        if best < 0:
            return gains.index(best)
        return next(place for place, gain in enumerate(gains) if gain >= ACCEPT * best)
