"""Aggregation: how a round is weighed; by the recipe's own way, or by the one that a search finds with the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.candidates import Trial
from fedmerit.core.fleet import Fleet
from fedmerit.core.groups import Groups
from fedmerit.core.recipes import Recipe
from fedmerit.core.search import Backtracking, Fixed, SearchState, Weighting, distinct
from fedmerit.core.types import Cohort, Evaluation, History, Matrix, Model
from fedmerit.core.updates import Updates
from fedmerit.core.weights import Note, Weights, together, weigh

ONE_WAY = Note("no-search", "search", "one criterion has one order: there is nothing to search for")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to weigh the round, and the labels of other ways whose weights are so near that they count as this one."""

    way: Weighting
    label: str
    weights: Weights
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What a search made of an option: the clients' accuracy and in which exchange; None where nobody was asked."""

    way: str
    same: tuple[str, ...]
    quality: float | None
    exchange: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The option taken and the model it gives; what was tried for it, and what that asked of the clients.

    `evaluations` are the models that went out, `tests` how often a client tested one. Without an option nobody could be
    weighed, and the model is the old one. `evaluation` is that of the model on all test rows, where the search came to
    know it. `aggregates` has a row per group where clients have models of their own, and the model stays as it is.
    """

    option: Candidate | None
    model: Model
    standing: SearchState
    tried: tuple[CandidateResult, ...] = ()
    exchanges: int = 0
    evaluations: int = 0
    tests: int = 0
    seconds: float = 0.0
    evaluation: Evaluation | None = None
    aggregates: NDArray[np.float32] | None = None


def table(recipe: Recipe, round: Cohort, history: History) -> Matrix:
    """The criteria side by side, one row per client, most important criterion first."""
    return np.column_stack([criterion(round, history) for criterion in recipe.criteria])


def earn(
    recipe: Recipe, round: Cohort, history: History, groups: Groups | None = None, way: Weighting | None = None
) -> Weights:
    """The weights inside each group, which sum to 1 there; in the recipe's own way or in another."""
    members, way = groups.members if groups else [], way or recipe.way
    if len(members) <= 1:
        return _earn(recipe, round, history, way)
    return together([_earn(recipe, round.keep(places), history, way) for places in members], members)


def _earn(recipe: Recipe, round: Cohort, history: History, way: Weighting) -> Weights:
    """Criteria -> normalised table -> scores -> weights."""
    samples = round.facts["samples"]
    uniform = np.full(len(samples), float(recipe.when_zero == "uniform"))
    fallback = samples if recipe.when_zero == "samples" else uniform
    columns = [recipe.priority.index(name) for name in way.priority]
    return weigh(table(recipe, round, history)[:, columns], way.priority, way.score, way.normalise, fallback)


def make_candidates(
    recipe: Recipe, standing: SearchState, round: Cohort, history: History, groups: Groups, random: np.random.Generator
) -> list[Candidate]:
    """The recipe's ways that differ in this round, in the order in which its search visits them."""
    search, ways = recipe.search, recipe.ways
    if isinstance(search, Fixed):
        return [Candidate(recipe.way, recipe.way.label(recipe.way), earn(recipe, round, history, groups))]
    visited = search.visiting(ways.get(standing.way or "", recipe.way), tuple(ways.values()), random)
    labels = [way.label(recipe.way) for way in visited]
    earned = [earn(recipe, round, history, groups, way) for way in visited]
    if len(ways) == 1:
        earned[0] = replace(earned[0], notes=(*earned[0].notes, ONE_WAY))
    same = distinct([weights.weights for weights in earned], search.tolerance)
    return [
        Candidate(visited[i], labels[i], earned[i], tuple(labels[j] for j, first in enumerate(same) if first == i != j))
        for i in sorted(set(same))
    ]


def decide(
    recipe: Recipe,
    groups: Groups,
    options: Sequence[Candidate],
    standing: SearchState,
    model: Model,
    updates: Updates,
    fleet: Fleet,
    random: np.random.Generator,
) -> Aggregation:
    """Take the one option, or try them on the clients (SPEC A2); nothing is retrained."""
    search = recipe.search
    if not options:
        return Aggregation(None, model, standing)
    if recipe.own:
        aggregates = updates.combine(groups.spread(options[0].weights.weights))
        return Aggregation(options[0], model, standing, aggregates=aggregates)
    if isinstance(search, Fixed):
        return Aggregation(options[0], model + updates.combine(options[0].weights.weights), standing)
    weightings = np.stack([option.weights.weights for option in options])
    trial = Trial(fleet, search, model, updates, weightings, _reference(search, standing), random)
    needless = len(options) == 1 and search.reference == "last"  # nothing to compare: the exchange is saved
    chosen = 0 if needless else search.choose(range(len(options)), trial.ask)
    answer = trial.answers.get(chosen) if search.judges is None else None
    quality = answer.quality if answer and not np.isnan(answer.quality) else None
    return Aggregation(
        options[chosen],
        trial.model(chosen).copy(),  # not a view that keeps all candidates in memory
        SearchState(options[chosen].label, quality, _best(standing.best, quality)),
        tuple(_tried(trial, place, option, place == chosen) for place, option in enumerate(options)),
        trial.exchanges,
        trial.tested,
        trial.tests,
        trial.seconds,
        trial.evaluations[chosen] if answer and search.adjust_on == "test" else None,
    )


def _tried(trial: Trial, place: int, option: Candidate, chosen: bool) -> CandidateResult:
    answer = trial.answers.get(place)
    return CandidateResult(
        option.label, option.same, answer.quality if answer else None, trial.exchange_of.get(place), chosen
    )


def _reference(search: Backtracking, standing: SearchState) -> float | None:
    """What a candidate must reach; None: the accuracy of the model before the round, which the trial asks for."""
    if search.judges is not None:
        return None
    return standing.quality if search.reference == "last" else standing.best


def _best(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
