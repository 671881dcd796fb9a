"""A search of one's own: the protocol suffices, nothing asks for its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from helpers import small_task

from fedmerit import DS, LD, federate
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.search import Choice, SearchState, Weighting


@dataclass(frozen=True)
class Worst:
    """Takes what the first three clients like least."""

    asks: str = "test"
    judges: None = None
    tolerance: float = 0.0

    def weightings(self, own: Weighting) -> tuple[Weighting, ...]:
        return own, Weighting(tuple(reversed(own.priority)), own.score, own.normalise)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        return weightings

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        panel.ask(range(len(panel)), panel.turn[:3])
        place = min(range(len(panel)), key=lambda place: panel.evaluations[place].accuracy)
        return Choice(place)


def test_a_search_of_ones_own_chooses_and_is_recorded():
    run = federate(small_task(), Recipe((DS, LD), search=Worst(), normalise="max"), rounds=3, fraction=1.0, seed=2)
    for index in (1, 2, 3):
        results = run.ledger.candidates(index)
        assert [result.weighting for result in results] == ["DS > LD", "LD > DS"]
        chosen = next(result for result in results if result.chosen)
        assert chosen.quality == min(result.quality for result in results if result.quality is not None)
    row = run.ledger.rounds()[0]
    assert (row["exchanges"], row["evaluations"], row["tests"]) == (1, 2, 6)
