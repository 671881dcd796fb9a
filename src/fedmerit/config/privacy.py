"""[privacy]: noise on the aggregate, and how much of it; and the recipe of a whole configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from fedmerit.config.account import noise_for
from fedmerit.config.recipe import make_recipe
from fedmerit.config.run import RunConfig
from fedmerit.config.sections import Positive, Section, core_field, refuse_idle
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import private
from fedmerit.core.server.private_sum import Accountant, AdaptiveClip, PrivateSum
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.config.schema import Config


class PrivacyConfig(Section):
    """[privacy]: client-level differential privacy of the model, with noise at the server."""

    clip: Positive | Literal["adaptive"] = Field(
        description="the largest norm of an update; `adaptive`: it follows a private quantile of the norms"
    )
    clip_start: float = core_field(AdaptiveClip, "start")
    quantile: float = core_field(AdaptiveClip, "quantile")
    clip_rate: float = core_field(AdaptiveClip, "rate")
    noise: float | None = core_field(PrivateSum, "noise", default=None)
    epsilon: Positive | None = Field(
        None, description="the target after run.rounds, for which the noise is found; or `noise`"
    )
    delta: float = core_field(PrivateSum, "delta")
    accountant: Accountant = core_field(PrivateSum, "accountant")
    reproducible: bool = core_field(PrivateSum, "reproducible")

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if (self.noise is None) == (self.epsilon is None):
            got = "both" if self.noise is not None else "neither"
            raise ValueError(
                f"[privacy] takes either noise = 1.1, a multiplier, or epsilon = 4.0, a target after all rounds; {got} "
                "was given"
            )
        if self.clip != "adaptive":
            refuse_idle(self, ("clip_start", "quantile", "clip_rate"), "with a fixed clip; set clip = 'adaptive'")
        return self


def make_privacy(section: PrivacyConfig, run: RunConfig) -> PrivateSum:
    """The noisy sum of a run's rounds; a target epsilon becomes the noise that reaches it."""
    noise, delta, accountant = section.noise, section.delta, section.accountant
    if noise is None:
        assert section.epsilon is not None  # one of the two is given
        noise = noise_for(section.epsilon, delta, run.fraction, run.rounds, accountant)
    adaptive = AdaptiveClip(section.clip_start, section.quantile, section.clip_rate)
    clip = adaptive if section.clip == "adaptive" else section.clip
    return PrivateSum(noise, run.fraction, clip, delta=delta, accountant=accountant, reproducible=section.reproducible)


def recipe_of(config: Config) -> Recipe:
    """The recipe of a configuration, with its privacy."""
    recipe = make_recipe(config.recipe)
    if config.privacy is None:
        return recipe
    if config.recipe.values.get("when_zero", "keep") != "keep":
        raise ConfigError(
            "recipe.when_zero has no effect with [privacy]: a score of 0 adds nothing to the noisy sum, also where all "
            "are 0; remove it"
        )
    return private(recipe, make_privacy(config.privacy, config.run))
