"""Recipes: each algorithm is one frozen value that names its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedmerit.config import RecipeConfig
from fedmerit.criteria import DS, Criterion, find_priority
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.named_scores import make_score
from fedmerit.scores import Prioritized, Score
from fedmerit.types import Normalise

WhenZero = Literal["samples", "keep"]
PRIORITIZED = Prioritized()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a round's facts and updates become weights."""

    criteria: tuple[Criterion, ...]
    score: Score = PRIORITIZED
    normalise: Normalise = "sum"
    when_zero: WhenZero = "samples"

    def __post_init__(self) -> None:
        if not self.criteria:
            raise ConfigError("a recipe has at least one criterion")
        if len(set(self.priority)) < len(self.criteria):
            raise ConfigError(f"a recipe names each criterion once; got {', '.join(self.priority)}")
        counts = [criterion.name for criterion in self.criteria if not criterion.degree]
        if self.normalise == "none" and counts:
            raise ConfigError(
                f'normalise "none" takes criteria that lie in 0..1 by themselves; {", ".join(counts)} do not; '
                'use "max" or "sum"'
            )

    @property
    def priority(self) -> tuple[str, ...]:
        """The criteria's names, most important first."""
        return tuple(criterion.name for criterion in self.criteria)

    @property
    def needs(self) -> tuple[str, ...]:
        """The facts to ask of clients; samples always, since empty clients are left out."""
        facts = ["samples", *(fact for criterion in self.criteria for fact in criterion.needs)]
        return tuple(dict.fromkeys(facts))


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


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe that configuration can name."""

    about: str
    make: Callable[[RecipeConfig], Recipe]


RECIPES: Mapping[str, NamedRecipe] = {
    "fedavg": NamedRecipe("weights by dataset size: the baseline of all four papers", _fedavg),
    "prioritized": NamedRecipe("PMCFL: several criteria in a priority order, any score", _prioritized),
}


def make_recipe(config: RecipeConfig) -> Recipe:
    """The recipe that a configuration names."""
    if config.name not in RECIPES:
        raise UnknownName("recipe", config.name, RECIPES)
    return RECIPES[config.name].make(config)
