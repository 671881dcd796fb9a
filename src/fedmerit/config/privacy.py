"""[privacy]: noise on the aggregate, and how much of it; and the recipe of a whole configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from fedmerit.config.account import noise_for
from fedmerit.config.recipes import make_recipe
from fedmerit.config.run import RunConfig
from fedmerit.config.sections import Positive, Section, refuse_idle
from fedmerit.core.recipe import Recipe
from fedmerit.core.server.adaptive_clip import AdaptiveClip
from fedmerit.core.server.private_centring import CentreNoise
from fedmerit.core.server.private_search import SearchNoise
from fedmerit.core.server.private_sum import Accountant, Privacy
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.config.schema import Config


class PrivacyConfig(Section):
    """[privacy]: client-level differential privacy of the model, with noise at the server."""

    clip: Positive | Literal["adaptive"] = Field(
        description="updates longer than this are shortened to it; `adaptive`: a length that follows a private quantile"
    )
    clip_start: Positive = Field(0.1, description="an adaptive clip's first length")
    quantile: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.5, description="the share of the updates that an adaptive clip leaves whole"
    )
    clip_rate: Positive = Field(0.2, description="how fast an adaptive clip moves")
    noise: Positive | None = Field(
        None, description="the noise multiplier z: noise on the sum has the standard deviation z * clip; or `epsilon`"
    )
    epsilon: Positive | None = Field(
        None, description="the target after run.rounds, for which the noise is found; or `noise`"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        1e-5, description="epsilon is stated at this delta; at most 1 / clients"
    )
    accountant: Accountant = Field("rdp", description="`rdp`, or `pld`, which is tighter and slower")
    search_share: Annotated[float, Field(gt=0, le=0.5)] | None = Field(
        None, description="the part of the budget, 1 / z^2, that the answers to a search over steps take"
    )
    search_clip: Positive = Field(1.0, description="the most that a client's gains in a search may be long")
    centre_noise: Positive | None = Field(
        None, description="for task.centre: the noise on the mean input, a multiple of centre_clip; an event of its own"
    )
    centre_clip: Positive = Field(10.0, description="the most that a client's mean input may be long")
    reproducible: bool = Field(
        False, description="noise and selection from run.seed, for tests: the guarantee is void, and every page says so"
    )

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
        if self.search_share is None:
            refuse_idle(self, ("search_clip",), "without search_share, which noises the answers to a search")
        if self.centre_noise is None:
            refuse_idle(self, ("centre_clip",), "without centre_noise, which noises the mean input of task.centre")
        return self

    def make_clip(self) -> float | AdaptiveClip:
        """The length, or how it adapts."""
        return AdaptiveClip(self.clip_start, self.quantile, self.clip_rate) if self.clip == "adaptive" else self.clip


def make_privacy(section: PrivacyConfig, run: RunConfig) -> Privacy:
    """The privacy of a run's rounds; a target epsilon becomes the noise that reaches it."""
    noise = section.noise
    if noise is None:
        assert section.epsilon is not None  # one of the two is given
        noise = noise_for(
            section.epsilon, section.delta, run.fraction, run.rounds, section.accountant, section.centre_noise
        )
    search = None if section.search_share is None else SearchNoise(section.search_share, section.search_clip)
    clip, delta = section.make_clip(), section.delta
    centre = None if section.centre_noise is None else CentreNoise(section.centre_noise, section.centre_clip)
    return Privacy(clip, noise, run.fraction, delta, section.accountant, section.reproducible, search, centre)


def recipe_of(config: Config) -> Recipe:
    """The recipe of a configuration, with its privacy."""
    recipe = make_recipe(config.recipe)
    if config.privacy is None:
        return recipe
    if getattr(config.recipe, "when_zero", "samples") != "samples":
        raise ConfigError(
            "recipe.when_zero has no effect with [privacy]: a score of 0 adds nothing to the noisy sum, also where all "
            "are 0; leave it out"
        )
    return replace(recipe, privacy=make_privacy(config.privacy, config.run))
