"""Aggregation: the cohort's updates become one model, or one aggregate per group, by the candidate that is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.candidates import Candidate
from fedmerit.core.fleet import Judges
from fedmerit.core.groups import Groups
from fedmerit.core.panel import Panel
from fedmerit.core.recipes import Recipe
from fedmerit.core.search import SearchState
from fedmerit.core.types import Cohort, Evaluation, Model


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What a search learned of a candidate: the clients' accuracy, and in which exchange; None where nobody was."""

    weighting: str
    same: tuple[str, ...]
    quality: float | None
    exchange: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The candidate taken and the model it gives; what was tried for it, and what that asked of the clients.

    `evaluations` are the models that went out, `tests` how often a client tested one. Without a candidate nobody could
    be weighed, and the model is the old one. `evaluation` is that of the model on all test rows, where the search came
    to know it. `aggregates` has a row per group where clients have personal models, and the model stays as it is.
    """

    candidate: Candidate | None
    model: Model
    search: SearchState
    results: tuple[CandidateResult, ...] = ()
    exchanges: int = 0
    evaluations: int = 0
    tests: int = 0
    seconds: float = 0.0
    evaluation: Evaluation | None = None
    aggregates: NDArray[np.float32] | None = None


def aggregate(
    recipe: Recipe,
    cohort: Cohort,
    groups: Groups,
    candidates: Sequence[Candidate],
    model: Model,
    state: SearchState,
    judges: Judges,
    random: np.random.Generator,
) -> Aggregation:
    """model + sum_k w_k update_k, w the weights of the candidate that the recipe's search takes.

    Nothing is retrained: a search compares what the same updates give under other weights.
    """
    search, updates = recipe.search, cohort.updates
    if not candidates:
        return Aggregation(None, model, state)
    if recipe.personal:
        rows = updates.combine(groups.spread(candidates[0].weights.weights))
        return Aggregation(candidates[0], model, state, aggregates=rows)
    if search.asks is None:
        return Aggregation(candidates[0], model + updates.combine(candidates[0].weights.weights), state)
    weightings = np.stack([candidate.weights.weights for candidate in candidates])
    panel = Panel(judges, search.asks, model, updates, weightings, random)
    choice = search.choose(panel, state)
    chosen = candidates[choice.place]
    return Aggregation(
        chosen,
        panel.model(choice.place).copy(),  # not a view that keeps all candidates in memory
        state.after(chosen.label, choice.quality),
        tuple(_result(panel, place, one, place == choice.place) for place, one in enumerate(candidates)),
        panel.exchanges,
        panel.models_sent,
        panel.tests,
        panel.seconds,
        panel.evaluations[choice.place] if choice.quality is not None and search.asks == "test" else None,
    )


def _result(panel: Panel, place: int, candidate: Candidate, chosen: bool) -> CandidateResult:
    asked = panel.evaluations.get(place)
    quality = None if asked is None else asked.accuracy
    return CandidateResult(candidate.label, candidate.same, quality, panel.exchange_of.get(place), chosen)
