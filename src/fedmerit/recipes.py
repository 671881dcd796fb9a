"""Recipes: each algorithm is one frozen value that names its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fedmerit.config import GroupsConfig, RecipeConfig, RewardConfig, SearchConfig, WayConfig
from fedmerit.criteria import COMPUTATION, DATA_RATIO, DS, PARTICIPATION, Criterion, find_priority
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.facts import SERVERS
from fedmerit.groups import ByCosine, Grouping, OneGroup
from fedmerit.named_scores import make_score
from fedmerit.rewards import Acceptance, Reward, TopShare, Whole
from fedmerit.scores import Prioritized, Product, Score
from fedmerit.search import Backtracking, Fixed, Search, Way
from fedmerit.types import Normalise, Own

WhenZero = Literal["samples", "keep"]
PRIORITIZED = Prioritized()
FIXED = Fixed()
BACKTRACKING = Backtracking()
ONE_GROUP = OneGroup()
BY_COSINE = ByCosine()
WHOLE = Whole()
TOP_SHARE = TopShare()
ACCEPTANCE = Acceptance()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a round's facts and updates become weights, and what clients get for them.

    Without `own` all clients train one model. With it each has its own and is rewarded with a part of its group's
    aggregate, if `acceptance` lets it; its training is kept or reset. `initial` is the share of clients that make the
    first model.
    """

    criteria: tuple[Criterion, ...]
    score: Score = PRIORITIZED
    normalise: Normalise = "sum"
    when_zero: WhenZero = "samples"
    search: Search = FIXED
    grouping: Grouping = ONE_GROUP
    reward: Reward = WHOLE
    own: Own | None = None
    acceptance: Acceptance = ACCEPTANCE
    initial: float = 0.0

    def __post_init__(self) -> None:
        if not self.criteria:
            raise ConfigError("a recipe has at least one criterion")
        if len(set(self.priority)) < len(self.criteria):
            raise ConfigError(f"a recipe names each criterion once; got {', '.join(self.priority)}")
        for way in self.ways.values():
            self._check(way)
        self._check_own()

    def _check_own(self) -> None:
        if not 0 <= self.initial <= 1:
            raise ConfigError(f"the initial phase takes a share of the clients, 0..1; got {self.initial}")
        if self.own and not isinstance(self.search, Fixed):
            raise ConfigError("a search tries models on all clients, and here each has its own; use the fixed order")
        if self.own is None and (self.grouping, self.reward) != (ONE_GROUP, WHOLE):
            raise ConfigError(
                'groups and rewards are for clients with models of their own; set own to "keep" or "reset", '
                "or leave out the groups and the reward"
            )

    def _check(self, way: Way) -> None:
        unknown = [name for name in way.priority if name not in self.priority]
        if unknown or not way.priority:
            raise ConfigError(
                f"a way to weigh names criteria of the recipe, {', '.join(self.priority)}; got {list(way.priority)}"
            )
        degrees = {criterion.name: criterion.degree for criterion in self.criteria}
        counts = [name for name in way.priority if not degrees[name]]
        if way.normalise == "none" and counts:
            raise ConfigError(
                f'normalise "none" takes criteria that lie in 0..1 by themselves; {", ".join(counts)} do not; '
                'use "max" or "sum"'
            )

    @property
    def way(self) -> Way:
        """The way in which the recipe weighs where its search finds no better one."""
        return Way(self.priority, self.score, self.normalise)

    @property
    def ways(self) -> dict[str, Way]:
        """All the ways its search may take, by label; its own first."""
        own = self.way
        return {way.label(own): way for way in self.search.ways(own)}

    @property
    def priority(self) -> tuple[str, ...]:
        """The criteria's names, most important first."""
        return tuple(criterion.name for criterion in self.criteria)

    @property
    def needs(self) -> tuple[str, ...]:
        """The facts its criteria read; samples always, since empty clients are left out."""
        facts = ["samples", *(fact for criterion in self.criteria for fact in criterion.needs)]
        return tuple(dict.fromkeys(facts))

    @property
    def asks(self) -> tuple[str, ...]:
        """Those of them that clients are asked for."""
        return tuple(name for name in self.needs if name not in SERVERS)


def fedavg() -> Recipe:
    """Weights in proportion to the number of samples: the single criterion DS."""
    return Recipe(criteria=(DS,))


def prioritized(
    *criteria: Criterion,
    score: Score = PRIORITIZED,
    normalise: Normalise = "sum",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """PMCFL (SPEC A1): criteria in the order of their priority, prioritized scoring unless another score is given."""
    return Recipe(criteria=criteria, score=score, normalise=normalise, when_zero=when_zero)


def device_aware(
    *criteria: Criterion,
    search: Backtracking = BACKTRACKING,
    score: Score = PRIORITIZED,
    normalise: Normalise = "sum",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """DAFL (SPEC A2): as `prioritized`, and in each round the clients' accuracy decides on the order."""
    return Recipe(criteria=criteria, score=score, normalise=normalise, when_zero=when_zero, search=search)


def m2f(
    *criteria: Criterion,
    grouping: Grouping = BY_COSINE,
    reward: Reward = TOP_SHARE,
    own: Own = "keep",
    acceptance: Acceptance = ACCEPTANCE,
    initial: float = 0.1,
) -> Recipe:
    """M2F (SPEC A3): groups of like updates; quality = participation x computation x data ratio; rewards by quality."""
    return Recipe(
        criteria=criteria or (PARTICIPATION, COMPUTATION, DATA_RATIO),
        score=Product(),
        normalise="max",  # the product's shares are the same for any scale of a column
        grouping=grouping,
        reward=reward,
        own=own,
        acceptance=acceptance,
        initial=initial,
    )


def _fedavg(config: RecipeConfig) -> Recipe:
    if config.priority not in ((), ("DS",)):
        raise ConfigError(f'recipe fedavg weighs by DS alone; for {list(config.priority)} use recipe "prioritized"')
    if config.score.name != "prioritized":
        raise ConfigError(f'recipe fedavg has no score to choose; for {config.score.name} use recipe "prioritized"')
    return fedavg()


def _prioritized(config: RecipeConfig) -> Recipe:
    criteria = find_priority(config.priority)
    score = make_score(config.score, config.priority)
    return prioritized(*criteria, score=score, normalise=config.normalise, when_zero=config.when_zero)


def _device_aware(config: RecipeConfig) -> Recipe:
    recipe = _prioritized(config)
    return replace(recipe, search=_backtracking(config))


def _backtracking(config: RecipeConfig) -> Backtracking:
    settings = config.search or SearchConfig()
    among = tuple(_way(way, config) for way in settings.among)
    return Backtracking(**settings.model_dump(exclude={"among"}), among=among)


def _way(way: WayConfig, config: RecipeConfig) -> Way:
    priority = way.priority or config.priority
    return Way(tuple(priority), make_score(way.score or config.score, priority), way.normalise or config.normalise)


def _m2f(config: RecipeConfig) -> Recipe:
    if config.score.name not in ("prioritized", "product"):
        raise ConfigError(f'recipe m2f multiplies its criteria; for score {config.score.name} use recipe "prioritized"')
    groups, reward = config.groups or GroupsConfig(), config.reward or RewardConfig()
    top = TopShare(reward.share, reward.largest, reward.scope, reward.exclude_own)
    return m2f(
        *(find_priority(config.priority) if config.priority else ()),
        grouping=ByCosine(groups.linkage, groups.cut, groups.at, groups.over) if groups.by == "cosine" else ONE_GROUP,
        reward=top if reward.kind == "top" else WHOLE,
        own=reward.training,
        acceptance=Acceptance(reward.sigma),
        initial=reward.initial,
    )


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe that configuration can name."""

    about: str
    make: Callable[[RecipeConfig], Recipe]


RECIPES: Mapping[str, NamedRecipe] = {
    "fedavg": NamedRecipe("weights by dataset size: the baseline of all four papers", _fedavg),
    "prioritized": NamedRecipe("PMCFL: several criteria in a priority order, any score", _prioritized),
    "device_aware": NamedRecipe("DAFL: in each round the clients' accuracy decides on the order", _device_aware),
    "m2f": NamedRecipe("M2F: own models, groups of like updates, rewards in proportion to quality", _m2f),
}


def make_recipe(config: RecipeConfig) -> Recipe:
    """The recipe that a configuration names."""
    if config.name not in RECIPES:
        raise UnknownName("recipe", config.name, RECIPES)
    if config.search is not None and config.name != "device_aware":
        raise ConfigError(f'recipe {config.name} keeps to one order; to search for one use recipe "device_aware"')
    if (config.groups or config.reward) and config.name != "m2f":
        raise ConfigError(f'recipe {config.name} has one model for all; for groups and rewards use recipe "m2f"')
    return RECIPES[config.name].make(config)
