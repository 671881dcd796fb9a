"""A search of one's own: the protocol suffices, nothing asks for its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from helpers import small_task

from fedmerit import DS, LD, federate
from fedmerit.core.models.shared import Job
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.evaluator import CandidateEvaluator
from fedmerit.core.search.search import Choice, Weighting
from fedmerit.core.server.server import Batch


@dataclass(frozen=True)
class Worst:
    """Takes what the first three clients like least."""

    asks: str = "test"
    tolerance: float = 0.0

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        return base, Weighting(tuple(reversed(base.priority)), base.score, base.normalise)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        return weightings

    def choose(self, batch: Batch, job: Job) -> Choice:
        evaluator = CandidateEvaluator(batch, job, "test")
        evaluator.ask(range(len(evaluator)), job.cohort.ids[:3])
        return evaluator.choice(min(evaluator.evaluations, key=lambda place: evaluator.evaluations[place].accuracy))


def test_a_search_of_ones_own_chooses_and_is_recorded():
    run = federate(small_task(), Recipe((DS, LD), search=Worst(), normalise="max"), rounds=3, fraction=1.0, seed=2)
    for index in (1, 2, 3):
        results = run.ledger.candidates(index)
        assert [result.weighting for result in results] == ["DS > LD", "LD > DS"]
        chosen = next(result for result in results if result.chosen)
        assert chosen.quality == min(result.quality for result in results if result.quality is not None)
    row = run.ledger.rounds()[0]
    assert (row["exchanges"], row["evaluations"], row["tests"]) == (1, 2, 6)
