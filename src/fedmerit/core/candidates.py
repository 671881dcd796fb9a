"""Candidates: the weightings of a round that differ, with the weights that each gives to the cohort."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmerit.core.facts import SAMPLES
from fedmerit.core.groups import Groups
from fedmerit.core.recipes import Recipe
from fedmerit.core.search import SearchState, Weighting, distinct
from fedmerit.core.types import Cohort, History, Matrix
from fedmerit.core.weights import Note, Weights, concat_groups, weigh

ONE_WEIGHTING = Note("no-search", "search", "one criterion has one order: there is nothing to search for")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A weighting with its weights, and the labels of others whose weights are so near that they count as this one."""

    weighting: Weighting
    label: str
    weights: Weights
    same: tuple[str, ...] = ()


def make_candidates(
    recipe: Recipe, cohort: Cohort, history: History, groups: Groups, state: SearchState, random: np.random.Generator
) -> list[Candidate]:
    """The recipe's weightings that differ in this round, in the order in which its search visits them."""
    if not cohort.ids:
        return []
    search, own, weightings = recipe.search, recipe.weighting, recipe.weightings
    visited = search.visit(weightings.get(state.weighting or "", own), tuple(weightings.values()), random)
    labels = [weighting.label(own) for weighting in visited]
    earned = [earn(recipe, cohort, history, groups, weighting) for weighting in visited]
    if search.asks is not None and len(weightings) == 1:
        earned[0] = replace(earned[0], notes=(*earned[0].notes, ONE_WEIGHTING))
    same = distinct([weights.weights for weights in earned], search.tolerance)
    return [
        Candidate(visited[i], labels[i], earned[i], tuple(labels[j] for j, first in enumerate(same) if first == i != j))
        for i in sorted(set(same))
    ]


def table(recipe: Recipe, cohort: Cohort, history: History) -> Matrix:
    """The criteria side by side, one row per client, most important criterion first."""
    return np.column_stack([criterion(cohort, history) for criterion in recipe.criteria])


def earn(
    recipe: Recipe, cohort: Cohort, history: History, groups: Groups | None = None, weighting: Weighting | None = None
) -> Weights:
    """The weights inside each group, which sum to 1 there; by the recipe's own weighting or by another."""
    members, weighting = groups.members if groups else [], weighting or recipe.weighting
    if len(members) <= 1:
        return _earn(recipe, cohort, history, weighting)
    return concat_groups([_earn(recipe, cohort.keep(places), history, weighting) for places in members], members)


def _earn(recipe: Recipe, cohort: Cohort, history: History, weighting: Weighting) -> Weights:
    """Criteria -> normalised table -> scores -> weights."""
    samples = cohort.facts[SAMPLES]
    uniform = np.full(len(samples), float(recipe.when_zero == "uniform"))
    fallback = samples if recipe.when_zero == "samples" else uniform
    columns = [recipe.priority.index(name) for name in weighting.priority]
    raw = table(recipe, cohort, history)[:, columns]
    return weigh(raw, weighting.priority, weighting.score, weighting.normalise, fallback)
