"""Recipes by name: from [recipe] of a configuration to a recipe; a closed table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fedmerit.config.schema import GroupsConfig, RecipeConfig, RewardConfig, SearchConfig, WeightingConfig
from fedmerit.config.scores import make_score
from fedmerit.core.criteria import Criterion, Validated, find_priority
from fedmerit.core.facts import VALIDATED
from fedmerit.core.groups import ByCosine
from fedmerit.core.objectives import Gated
from fedmerit.core.recipes import (
    ONE_GROUP,
    WHOLE,
    Recipe,
    agnostic,
    fedavg,
    fedval,
    m2f,
    prioritized,
    qffl,
)
from fedmerit.core.rewards import Acceptance, TopShare
from fedmerit.core.search import Backtracking, Weighting
from fedmerit.errors import ConfigError, UnknownName


def _fedavg(config: RecipeConfig) -> Recipe:
    if config.priority not in ((), ("DS",)):
        raise ConfigError(f'recipe fedavg weighs by DS alone; for {list(config.priority)} use recipe "prioritized"')
    if config.score.name != "prioritized":
        raise ConfigError(f'recipe fedavg has no score to choose; for {config.score.name} use recipe "prioritized"')
    return fedavg()


def _prioritized(config: RecipeConfig) -> Recipe:
    criteria = tuple(_gated(criterion, config) for criterion in find_priority(config.priority))
    score = make_score(config.score, config.priority)
    made = prioritized(*criteria, score=score, normalise=config.normalise, when_zero=config.when_zero)
    return replace(made, rho=config.server.rho) if config.server else made


def _device_aware(config: RecipeConfig) -> Recipe:
    recipe = _prioritized(config)
    return replace(recipe, search=_backtracking(config))


def _backtracking(config: RecipeConfig) -> Backtracking:
    settings = config.search or SearchConfig()
    among = tuple(_way(way, config) for way in settings.among)
    return Backtracking(**settings.model_dump(exclude={"among"}), among=among)


def _way(way: WeightingConfig, config: RecipeConfig) -> Weighting:
    priority = way.priority or config.priority
    return Weighting(
        tuple(priority), make_score(way.score or config.score, priority), way.normalise or config.normalise
    )


def _m2f(config: RecipeConfig) -> Recipe:
    if config.score.name not in ("prioritized", "product"):
        raise ConfigError(f'recipe m2f multiplies its criteria; for score {config.score.name} use recipe "prioritized"')
    groups, reward = config.groups or GroupsConfig(), config.reward or RewardConfig()
    top = TopShare(reward.share, reward.largest, reward.scope, reward.exclude_own)
    return m2f(
        *(find_priority(config.priority) if config.priority else ()),
        grouping=ByCosine(groups.linkage, groups.cut, groups.at, groups.over) if groups.by == "cosine" else ONE_GROUP,
        reward=top if reward.kind == "top" else WHOLE,
        personal=reward.training,
        acceptance=Acceptance(reward.sigma),
        initial=reward.initial,
    )


def _gated(criterion: Criterion, config: RecipeConfig) -> Criterion:
    """With the server's gate, where one is set."""
    gate = config.server.gate if config.server else 0.0
    if not gate or not isinstance(criterion, Validated):
        return criterion
    return Validated(Gated(criterion.objective, gate))


def _fedval(config: RecipeConfig) -> Recipe:
    criteria = find_priority(config.priority)
    if not all(isinstance(criterion, Validated) for criterion in criteria):
        raise ConfigError(
            "recipe fedval weighs by what the server measures: criteria named validated:OBJECTIVE; "
            f'got {", ".join(config.priority)}; to mix them with others use recipe "prioritized"'
        )
    if config.score.name not in ("prioritized", "weighted-mean"):
        raise ConfigError(f'recipe fedval adds up its objectives; for score {config.score.name} use "prioritized"')
    objectives = [_gated(criterion, config) for criterion in criteria]
    return fedval(
        *(criterion.objective for criterion in objectives if isinstance(criterion, Validated)),
        gamma=config.score.weights or (),
        rank=config.score.rank,
        top=0.5 if config.score.top is None else config.score.top,
        normalise="minmax" if config.normalise == "minmax" else "none",
        rho=config.server.rho if config.server else 0.5,
    )


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe that configuration can name."""

    about: str
    make: Callable[[RecipeConfig], Recipe]


def _qffl(config: RecipeConfig) -> Recipe:
    _no_priority(config)
    return qffl(config.strength)


def _agnostic(config: RecipeConfig) -> Recipe:
    _no_priority(config)
    return agnostic(config.strength)


def _no_priority(config: RecipeConfig) -> None:
    if config.priority:
        raise ConfigError(f"recipe {config.name} weighs by the clients' losses alone; leave out recipe.priority")


RECIPES: Mapping[str, NamedRecipe] = {
    "fedavg": NamedRecipe("weights by dataset size: the baseline of all four papers", _fedavg),
    "prioritized": NamedRecipe("PMCFL: several criteria in a priority order, any score", _prioritized),
    "device_aware": NamedRecipe("DAFL: in each round the clients' accuracy decides on the order", _device_aware),
    "m2f": NamedRecipe("M2F: own models, groups of like updates, rewards in proportion to quality", _m2f),
    "fedval": NamedRecipe("FedVal: objectives that the server measures on rows of its own, ranked or not", _fedval),
    "qffl": NamedRecipe("baseline q-FFL: weights by the loss to the power recipe.strength", _qffl),
    "agnostic": NamedRecipe("baseline agnostic FL: who fares worst is raised round by round", _agnostic),
}


def make_recipe(config: RecipeConfig) -> Recipe:
    """The recipe that a configuration names."""
    if config.name not in RECIPES:
        raise UnknownName("recipe", config.name, RECIPES)
    if config.search is not None and config.name != "device_aware":
        raise ConfigError(f'recipe {config.name} keeps to one order; to search for one use recipe "device_aware"')
    if config.server is not None and not any(name.startswith(VALIDATED) for name in config.priority):
        raise ConfigError("recipe.server is for criteria named validated:OBJECTIVE, and recipe.priority has none")
    if (config.groups or config.reward) and config.name != "m2f":
        raise ConfigError(f'recipe {config.name} has one model for all; for groups and rewards use recipe "m2f"')
    return RECIPES[config.name].make(config)
