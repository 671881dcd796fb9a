"""Aggregation: weights for each candidate weighting, the one that is taken, and the model that it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import Judges, Predict
from fedmerit.core.models.grouping import Groups
from fedmerit.core.recipe import Recipe
from fedmerit.core.results import Reports
from fedmerit.core.search.evaluator import Panel
from fedmerit.core.search.search import SearchState, Weighting, distinct
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.server.aggregators import at_round
from fedmerit.core.server.optimizers import Aggregate, HeavyBall, coefficients_of
from fedmerit.core.server.private_search import client_gains
from fedmerit.core.server.private_sum import CLIP, FIXED, Privacy, private_aggregate
from fedmerit.core.stages.clip import clipped
from fedmerit.core.types import Cohort, Evaluation, History, Matrix, Model
from fedmerit.core.weights.limits import apply_caps
from fedmerit.core.weights.scales import bounds_of
from fedmerit.core.weights.weigh import Note, Weights, concat_groups, weigh

ONE_WEIGHTING = Note("no-search", "search", "one criterion has one order: there is nothing to search for")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A weighting with its weights, and the labels of others whose weights are so near that they count as this one."""

    weighting: Weighting
    label: str
    weights: Weights
    same: tuple[str, ...] = ()


def make_candidates(
    recipe: Recipe,
    cohort: Cohort,
    history: History,
    groups: Groups,
    state: SearchState,
    random: np.random.Generator,
    moved: bool = False,
) -> list[Candidate]:
    """The recipe's weightings that differ in this round, in the order in which its search visits them.

    `moved`: whether a step has a last move to carry on; in the first round it has none.
    """
    if not cohort.ids:
        return []
    search, own, weightings = recipe.search, recipe.weighting, recipe.weightings
    visited = search.visit(weightings.get(state.weighting or "", own), tuple(weightings.values()), random)
    labels = [weighting.label(own) for weighting in visited]
    unstepped = {weighting: replace(weighting, step=None) for weighting in visited}
    weights_of = {one: earn(recipe, cohort, history, groups, one) for one in dict.fromkeys(unstepped.values())}
    earned = [weights_of[unstepped[weighting]] for weighting in visited]
    if search.asks is not None and len(weightings) == 1:
        earned[0] = replace(earned[0], notes=(*earned[0].notes, ONE_WEIGHTING))
    steps = [_effect(weighting.step, moved) for weighting in visited]
    same = distinct([weights.weights for weights in earned], search.tolerance, steps)
    return [
        Candidate(visited[i], labels[i], earned[i], tuple(labels[j] for j, first in enumerate(same) if first == i != j))
        for i in sorted(set(same))
    ]


def _effect(step: HeavyBall | None, moved: bool) -> HeavyBall | None:
    """The step as far as it counts in this round."""
    return step if step is None or moved else replace(step, carry=0.0)


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
    """Criteria -> normalised table -> scores -> weights -> cap."""
    samples = cohort.facts[SAMPLES]
    uniform = np.full(len(samples), float(recipe.when_zero == "uniform"))
    fallback = samples if recipe.when_zero == "samples" else uniform
    if recipe.privacy is not None:  # a score of 0 adds nothing to the sum, also where all have one
        fallback = np.zeros(len(samples))
    columns = [recipe.priority.index(name) for name in weighting.priority]
    raw = table(recipe, cohort, history)[:, columns]
    scales = bounds_of(recipe.scales, weighting.priority) if weighting.normalise == "scale" else None
    earned = weigh(raw, weighting.priority, weighting.score, weighting.normalise, fallback, scales)
    if recipe.privacy is not None:  # there the cap is in the fixed denominator, and moves no weight to others
        return earned
    return apply_caps(earned, recipe.cap, recipe.cap_group, cohort.facts)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What a search learned of a candidate, and in which exchange; None where nobody was asked.

    `quality` is the accuracy of the clients that were asked, or their mean loss where the search goes by loss.
    """

    weighting: str
    same: tuple[str, ...]
    quality: float | None
    exchange: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The candidate taken and the model it gives; what was tried for it, and what that asked of the clients.

    `evaluations` are the models tested, `tests` how often a client tested one, `bytes_down` what went out for it.
    Without a candidate nobody could be weighed, and the model is the old one. `evaluation` is that of the model on all
    test rows, where the search came to know it. `aggregates` has a row per group where clients have personal models,
    and the model stays as it is. `parts` is what the step remembers, `clip` the length that privacy cut updates to.
    `reports` is what the search's judges said beside what the server's rows say, where they are held to it.
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
    parts: Mapping[str, Model] = field(default_factory=dict)
    bytes_down: int = 0
    clip: float | None = None
    reports: Reports | None = None


def aggregate(
    recipe: Recipe,
    cohort: Cohort,
    groups: Groups,
    candidates: Sequence[Candidate],
    model: Model,
    parts: Mapping[str, Model],
    state: SearchState,
    judges: Judges,
    random: np.random.Generator,
    seed: int = 0,
    clients: int = 0,
    predict: Predict | None = None,
) -> Aggregation:
    """The recipe's step from `model` along sum_k w_k update_k, w the weights of the candidate that its search takes.

    A recipe may clip the updates, and aggregate them in another way than by that sum; `seed` is for what that draws.

    Nothing is retrained: a search compares what the same updates give under other weights. With privacy the aggregate
    is the noisy sum of `core.privacy`, of so many `clients` in all, also where nobody came.
    """
    if recipe.privacy is not None:
        return _private(recipe, cohort, candidates, model, parts, state, judges, random, seed, clients)
    search, updates = recipe.search, clipped(cohort)
    combine = partial(at_round(recipe.aggregate, cohort.index), updates, seed=seed)
    if not candidates:
        return Aggregation(None, model, state, parts=parts)

    def step(candidate: Candidate, update: Model) -> tuple[Model, Mapping[str, Model]]:
        aggregate = Aggregate(update, float(candidate.weights.weights @ np.square(updates.norms)))
        return (candidate.weighting.step or recipe.step)(model, aggregate, parts, cohort.index)

    if recipe.personal:
        rows = updates.combine(groups.spread(candidates[0].weights.weights))
        return Aggregation(candidates[0], model, state, aggregates=rows)
    if search.asks is None:
        stepped, remembered = step(candidates[0], combine(candidates[0].weights.weights))
        return Aggregation(candidates[0], stepped, state, parts=remembered)
    steps = [candidate.weighting.step or recipe.step for candidate in candidates]
    linear = [pair for one in steps if (pair := coefficients_of(one)) is not None]
    panel = Panel(
        judges,
        search.asks,
        model,
        np.stack([candidate.weights.weights for candidate in candidates]),
        combine,
        random,
        took_part=cohort.ids,
        step=lambda place, update: step(candidates[place], update)[0],
        coefficients=linear if len(linear) == len(steps) else None,
        move=parts.get("move"),
        last=next((i for i, one in enumerate(candidates) if state.weighting in (one.label, *one.same)), None),
        most=recipe.claims.k if recipe.claims else None,
        predict=predict if recipe.checks_results else None,
    )
    choice = search.choose(panel, state)
    chosen = candidates[choice.place]
    stepped, remembered = step(chosen, panel.update(choice.place))
    return Aggregation(
        chosen,
        stepped,
        state.after(chosen.label, choice.quality),
        tuple(_result(panel, place, one, place == choice.place) for place, one in enumerate(candidates)),
        panel.exchanges,
        panel.models_sent,
        panel.tests,
        panel.seconds,
        panel.evaluations[choice.place] if choice.quality is not None and search.asks == "test" else None,
        parts=remembered,
        bytes_down=panel.bytes_down,
        reports=panel.reports,
    )


def _private(
    recipe: Recipe,
    cohort: Cohort,
    candidates: Sequence[Candidate],
    model: Model,
    parts: Mapping[str, Model],
    state: SearchState,
    judges: Judges,
    random: np.random.Generator,
    seed: int,
    clients: int,
) -> Aggregation:
    """The step along the noisy sum; a step sees nothing else of the updates."""
    privacy, candidate = recipe.privacy, candidates[0] if candidates else None
    assert privacy is not None  # the caller asked
    weights, clip = candidate.weights if candidate else None, privacy.clip_in(parts)
    fixed = int(parts[FIXED][0]) if FIXED in parts else 0
    noisy = np.zeros(len(model), np.float32)
    moved = len(model) - fixed
    noisy[:moved] = private_aggregate(recipe, cohort, weights, clip, moved, clients, seed)
    after = dict(privacy.next_clip(clip, cohort.updates.norms, clients, seed, cohort.index))
    after |= {FIXED: parts[FIXED]} if fixed else {}
    steps = {name: part for name, part in parts.items() if name not in (CLIP, FIXED)}
    if privacy.search is not None:
        found = _private_search(
            privacy, recipe, cohort, weights, model, noisy, steps, state, judges, random, seed, clients
        )
        return replace(found, parts={**found.parts, **after}, clip=clip)
    stepped, remembered = recipe.step(model, Aggregate(noisy, float(noisy @ noisy)), steps, cohort.index)
    return Aggregation(candidate, stepped, state, parts={**remembered, **after}, clip=clip)


def _private_search(
    privacy: Privacy,
    recipe: Recipe,
    cohort: Cohort,
    weights: Weights | None,
    model: Model,
    noisy: Model,
    parts: Mapping[str, Model],
    state: SearchState,
    judges: Judges,
    random: np.random.Generator,
    seed: int,
    clients: int,
) -> Aggregation:
    """The step along the noisy sum that the round's clients prefer, by noised gains; by noise alone where nobody came.

    Which steps are tried depends on what was released alone, so that a round without clients does not show.
    """
    search, own = recipe.search, recipe.weighting
    assert isinstance(search, BoldestFirst)  # the recipe was checked
    by_effect: dict[HeavyBall | None, Weighting] = {}
    for weighting in search.visit(own, tuple(recipe.weightings.values()), random):
        by_effect.setdefault(_effect(weighting.step, "move" in parts), weighting)
    tried = list(by_effect.values())
    coefficients = [(step.length, step.carry) for weighting in tried if (step := weighting.step)]
    rows, move = np.ones((len(tried), 1)), parts.get("move")
    panel = Panel(judges, search.asks, model, rows, lambda _: noisy[None], random, coefficients=coefficients, move=move)
    gains = np.empty((0, len(tried)))
    if cohort.ids:
        panel.ask(range(len(tried)), cohort.ids, before=True, losses=search.by == "loss")
        assert panel.before is not None  # it was asked for
        gains = client_gains(search, panel.before, [panel.evaluations[place] for place in range(len(tried))])
    place = search.pick(privacy.noisy_gains(gains, clients, seed, cohort.index).tolist())
    take = tried[place].step or recipe.step
    stepped, remembered = take(model, Aggregate(noisy, float(noisy @ noisy)), parts, cohort.index)
    all_of = [Candidate(one, one.label(own), weights) for one in tried] if weights else []
    return Aggregation(
        all_of[place] if all_of else None,
        stepped,
        state.after(tried[place].label(own), None),
        tuple(_result(panel, one, candidate, one == place) for one, candidate in enumerate(all_of)),
        panel.exchanges,
        panel.models_sent,
        panel.tests,
        panel.seconds,
        parts=remembered,
        bytes_down=panel.bytes_down,
    )


def _result(panel: Panel, place: int, candidate: Candidate, chosen: bool) -> CandidateResult:
    asked = panel.evaluations.get(place)
    quality = None if asked is None else asked.accuracy if asked.losses is None else asked.loss
    return CandidateResult(candidate.label, candidate.same, quality, panel.exchange_of.get(place), chosen)
