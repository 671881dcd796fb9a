"""[recipe]: one section per recipe, each beside the way to make the recipe; a closed table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator

from fedmerit.config.baselines import (
    AgnosticConfig,
    CFLConfig,
    CGSVConfig,
    DittoConfig,
    FedAMPConfig,
    FinetunedConfig,
    IFCAConfig,
    QFFLConfig,
    RFFLConfig,
    StandaloneConfig,
)
from fedmerit.config.groups import GroupsConfig, RewardConfig
from fedmerit.config.own import call_own, criteria_by_name, import_own
from fedmerit.config.recipe_keys import OneModelConfig, RecipeConfig
from fedmerit.config.scores import SCORES, AnyScore, WeightedMeanScore, make_score
from fedmerit.config.search import Names, SearchConfig, WeightingConfig
from fedmerit.config.sections import OWN, Positive, Section, name_of, named, one_of
from fedmerit.core import recipes
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.table import Criterion, Validated
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.objectives import Gated
from fedmerit.core.recipe import Recipe, WhenZero
from fedmerit.core.search.search import Weighting
from fedmerit.core.search.step_search import BoldestFirst
from fedmerit.core.types import Normalise
from fedmerit.core.weights.limits import OUR_CAP
from fedmerit.errors import ConfigError


class ServerConfig(Section):
    """[recipe.server]: how the server scores clients' models for criteria named validated:OBJECTIVE."""

    rho: Annotated[float, Field(gt=0, le=1)] | Literal["1/K"] = Field(
        0.5, description="a client's part in the merged model that is scored; 1: its model alone, `1/K`: as one of K"
    )
    gate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="models below this accuracy score 0 in every objective: a constant one looks fair"
    )

    marginal: bool = Field(
        False, description="count only what a client adds to the global model's score, so that a zero update earns 0"
    )

    def gated(self, criterion: Validated) -> Validated:
        """The criterion with this gate, where one is set, and by its gain, where that counts."""
        objective = Gated(criterion.objective, self.gate) if self.gate else criterion.objective
        return Validated(objective, marginal=self.marginal)


class FedAvgConfig(OneModelConfig):
    """[recipe] of FedAvg."""

    name: Literal["fedavg"] = "fedavg"
    about = "weights by dataset size: the baseline of all four papers"

    def make(self) -> Recipe:
        """Weights in proportion to the number of samples."""
        return recipes.fedavg()


def _gated(server: ServerConfig, criterion: Criterion) -> Criterion:
    """The criterion with the server's gate, also within a reputation."""
    if isinstance(criterion, Reputation):
        return replace(criterion, of=_gated(server, criterion.of))
    return server.gated(criterion) if isinstance(criterion, Validated) else criterion


class _Weighed(OneModelConfig):
    """The keys of recipes that score any criteria by any operator."""

    priority: Names = Field((), description="criteria, most important first")
    normalise: Normalise = Field(
        "sum",
        description="`sum` (the papers), `max` (recommended), `minmax` (the worst gets 0), `scale` (by public bounds) "
        "or `none` (degrees)",
    )
    score: AnyScore = Field(
        SCORES["prioritized"](name="prioritized"), description="the operator, by name or as a table with its options"
    )
    scales: Mapping[str, Positive] = Field(
        {}, description="for `scale`: the largest value of a criterion that counts, `{DS = 500}`; degrees need none"
    )
    when_zero: WhenZero = Field(
        "samples", description="all scores zero: weigh by `samples`, `uniform`ly, or `keep` the model"
    )
    server: ServerConfig | None = Field(None, description="how the server scores models, see [recipe.server]")

    def make(self) -> Recipe:
        """Criteria in the order of their priority, with the server's merging and gate."""
        server = self.server or ServerConfig()
        criteria = criteria_by_name(self.priority)
        gated = [_gated(server, criterion) for criterion in criteria]
        if self.server and not Recipe(tuple(gated)).validated:
            raise ConfigError("recipe.server is for criteria named validated:OBJECTIVE, and recipe.priority has none")
        score = make_score(self.score, self.priority)
        recipe = recipes.prioritized(
            *gated, score=score, normalise=self.normalise, when_zero=self.when_zero, scales=self.scales
        )
        return replace(recipe, rho=server.rho)


class PrioritizedConfig(_Weighed):
    """[recipe] of PMCFL [PMCFL]."""

    name: Literal["prioritized"] = "prioritized"
    about = "PMCFL: several criteria in a priority order, any score"


class _Searching(_Weighed):
    """The keys of recipes in which clients are asked."""

    search: SearchConfig | None = Field(None, description="what clients are asked, see [recipe.search]")

    def _among(self) -> tuple[Weighting, ...]:
        """The weightings to choose from, where they are named."""
        return tuple(self._weighting(way) for way in self.search.among) if self.search else ()

    def _weighting(self, way: WeightingConfig) -> Weighting:
        priority = way.priority or self.priority
        score = make_score(way.score or self.score, priority)
        names = tuple(criterion.name for criterion in criteria_by_name(priority))
        return Weighting(names, score, way.normalise or self.normalise)


class DeviceAwareConfig(_Searching):
    """[recipe] of DAFL [DAFL, Alg. 1]."""

    name: Literal["device_aware"] = "device_aware"
    about = "DAFL: in each round the clients' accuracy decides on the order"

    def make(self) -> Recipe:
        """As `prioritized`, and a search over orders or other ways to weigh, and steps."""
        search, among = self.search or SearchConfig(), self._among()
        if search.name:
            return replace(super().make(), search=search.own(search.name))
        if not search.compares_gains:
            return replace(super().make(), search=search.backtracking(among))
        by_accuracy = BoldestFirst(by="accuracy", judges=None)
        return replace(super().make(), search=search.boldest(among or "orders", by_accuracy))


class AdaptiveConfig(_Searching):
    """[recipe] whose step the clients judge."""

    name: Literal["adaptive"] = "adaptive"
    about = "clients judge by their loss how bold a step pays, round by round: nothing to tune"
    priority: Names = Field(("DS",), description="criteria, most important first")
    normalise: Normalise = Field(
        "max",
        description="`sum` (the papers), `max` (recommended), `minmax` (the worst gets 0), `scale` (by public bounds) "
        "or `none` (degrees)",
    )

    def make(self) -> Recipe:
        """As `prioritized`, and a search over steps."""
        search = self.search or SearchConfig()
        chosen = search.own(search.name) if search.name else search.boldest(self._among(), recipes.ADAPTIVE)
        return replace(super().make(), search=chosen, cap=OUR_CAP)


class M2FConfig(RecipeConfig):
    """[recipe] of M2F [M2F]; its score is the product, its shares are the same for any way to normalise."""

    name: Literal["m2f"] = "m2f"
    about = "M2F: personal models, groups of like updates, rewards in proportion to quality"
    priority: Names = Field((), description="criteria to multiply; default: Participation, Computation, DataRatio")
    groups: GroupsConfig | None = Field(None, description="who is aggregated together, see [recipe.groups]")
    reward: RewardConfig | None = Field(None, description="what clients get back, see [recipe.reward]")

    def make(self) -> Recipe:
        """Groups of like updates, and rewards by quality."""
        groups, reward = self.groups or GroupsConfig(), self.reward or RewardConfig()
        return recipes.m2f(
            *(criteria_by_name(self.priority) if self.priority else ()),
            grouping=groups.make(),
            reward=reward.make(),
            personal=reward.training,
            acceptance=Acceptance(reward.sigma),
            initial=reward.initial,
            until=reward.until,
        )


class FedValConfig(OneModelConfig):
    """[recipe] of FedVal [FedVal]."""

    name: Literal["fedval"] = "fedval"
    about = "FedVal: objectives that the server measures on rows of its own, ranked or not"
    priority: Names = Field((), description="criteria named validated:OBJECTIVE, in any order")
    score: Annotated[WeightedMeanScore, named("weighted-mean")] = Field(
        WeightedMeanScore(),
        description="`weighted-mean` with `weights` of the objectives (default: equal), `rank`, `top`",
    )
    normalise: Literal["none", "minmax", "sum"] = Field(
        "none",
        description="`none` (degrees), `minmax` (the worst gets 0) or `sum` (each objective divided by its own sum)",
    )
    server: ServerConfig | None = Field(None, description="how the server scores models, see [recipe.server]")

    @field_validator("score", mode="before")
    @classmethod
    def _adds_up(cls, value: Any) -> Any:
        name = value.get("name", "weighted-mean") if isinstance(value, Mapping) else value
        if isinstance(name, str) and name != "weighted-mean":
            raise ValueError(f'recipe fedval adds up its objectives by "weighted-mean"; for {name} use "prioritized"')
        return value

    def make(self) -> Recipe:
        """Objectives on the server's rows, added up."""
        server, score = self.server or ServerConfig(), self.score
        criteria = criteria_by_name(self.priority)
        validated = [server.gated(criterion) for criterion in criteria if isinstance(criterion, Validated)]
        if len(validated) < len(criteria):
            raise ConfigError(
                "recipe fedval weighs by what the server measures: criteria named validated:OBJECTIVE; "
                f'got {", ".join(self.priority)}; to mix them with others use recipe "prioritized"'
            )
        return recipes.fedval(
            *(criterion.objective for criterion in validated),
            gamma=score.weights or (),
            rank=score.rank,
            top=0.5 if score.top is None else score.top,
            normalise=self.normalise,
            rho=server.rho,
            marginal=server.marginal,
        )


class GuardedConfig(OneModelConfig):
    """[recipe] against attackers."""

    name: Literal["guarded"] = "guarded"
    about = "ours against attackers: dataset size, nothing for who is set apart, clip, cap, claims; no server rows"
    priority: Names = Field((), description="more criteria, multiplied into the score; default: none")

    def make(self) -> Recipe:
        """Weights by size and company."""
        return recipes.guarded(*(criteria_by_name(self.priority) if self.priority else ()))


class OwnRecipe(RecipeConfig):
    """[recipe] of a user's own."""

    name: str = OWN
    about = "a recipe of your own"

    def make(self) -> Recipe:
        """The recipe that the user's module defines, or that its function makes."""
        found = import_own("recipe", self.name, "a Recipe, or a function that makes one,")
        recipe = call_own("recipe", self.name, found) if callable(found) else found
        if not isinstance(recipe, Recipe):
            raise ConfigError(f"recipe {self.name!r} must be or make a fedmerit.Recipe; got {type(recipe).__name__}")
        return recipe


_RECIPES: tuple[type[RecipeConfig], ...] = (
    *(FedAvgConfig, PrioritizedConfig, DeviceAwareConfig, AdaptiveConfig, M2FConfig, FedValConfig, GuardedConfig),
    *(QFFLConfig, AgnosticConfig, CGSVConfig, RFFLConfig, StandaloneConfig),
    *(FinetunedConfig, FedAMPConfig, CFLConfig, IFCAConfig, DittoConfig),
)
RECIPES: Mapping[str, type[RecipeConfig]] = {name_of(section): section for section in _RECIPES}
"""Add a class here, and it can be configured, listed and documented."""

if TYPE_CHECKING:
    AnyRecipe: TypeAlias = RecipeConfig
else:
    AnyRecipe = one_of((*_RECIPES, OwnRecipe), "fedavg")
    """A recipe by name, bare or as a table."""


def make_recipe(config: RecipeConfig) -> Recipe:
    """The recipe that a configuration names, with its caps, claims, step, aggregator and clip."""
    recipe = config.guarded(config.make())
    if not isinstance(config, OneModelConfig):
        return recipe
    return replace(
        recipe,
        step=config.step.make() if config.step else recipe.step,
        aggregate=config.aggregate.make() if config.aggregate else recipe.aggregate,
        clip=config.clip.make() if config.clip else recipe.clip,
    )
