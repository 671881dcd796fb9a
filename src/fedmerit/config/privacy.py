"""[privacy]: noise on the aggregate, and how much of it; and the recipe of a whole configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from fedmerit.config.account import noise_for
from fedmerit.config.recipes import make_recipe
from fedmerit.config.run import RunConfig
from fedmerit.config.sections import Positive, Section
from fedmerit.core.privacy import Accountant, Privacy
from fedmerit.core.recipes import Recipe

if TYPE_CHECKING:
    from fedmerit.config.schema import Config


class PrivacyConfig(Section):
    """[privacy]: client-level differential privacy of the model, with noise at the server."""

    clip: Positive = Field(description="updates longer than this are shortened to it")
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
        return self


def make_privacy(section: PrivacyConfig, run: RunConfig) -> Privacy:
    """The privacy of a run's rounds; a target epsilon becomes the noise that reaches it."""
    noise = section.noise
    if noise is None:
        assert section.epsilon is not None  # one of the two is given
        noise = noise_for(section.epsilon, section.delta, run.fraction, run.rounds, section.accountant)
    return Privacy(section.clip, noise, run.fraction, section.delta, section.accountant, section.reproducible)


def recipe_of(config: Config) -> Recipe:
    """The recipe of a configuration, with its privacy."""
    recipe = make_recipe(config.recipe)
    if config.privacy is None:
        return recipe
    return replace(recipe, privacy=make_privacy(config.privacy, config.run))
