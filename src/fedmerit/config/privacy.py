"""[privacy]: noise with its epsilon by Google's dp-accounting, masked sums; recipe and collector of a configuration.

With noise, a round is a Poisson-sampled Gaussian mechanism; neighbouring federations differ in one client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import Field, model_validator

from fedmerit.config.recipe import make_recipe
from fedmerit.config.run import RunConfig, make_selection
from fedmerit.config.sections import Positive, Section, core_field
from fedmerit.core.collect.collect import InTime
from fedmerit.core.collect.facts_first import FactsFirst
from fedmerit.core.collect.masking import Masking
from fedmerit.core.host import Release
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import masked, privacy_of, private
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.config.schema import Config


WIDEST = 1e6
"""Largest noise multiplier that is tried for a target epsilon."""
PRECISION = 1e-3
Rounds: TypeAlias = tuple[tuple[float, float, int], ...]
"""(noise multiplier, sampling fraction, number of rounds) for each kind of round."""


class PrivacyConfig(Section):
    """[privacy]: client-level differential privacy, for which the server adds noise; secure aggregation."""

    clip: Positive | None = Field(
        None, description="clip update norms to this; default: 1 with noise, 100 with masks alone"
    )
    masked: bool = Field(
        False, description='hide single updates from the server by secure aggregation; implies `run.facts = "first"`'
    )
    noise: float | None = core_field(PrivateSum, "noise", default=None)
    epsilon: Positive | None = Field(
        None, description="target epsilon after `run.rounds`, from which the noise is computed; default: from `noise`"
    )
    delta: float = core_field(PrivateSum, "delta")
    reproducible: bool = core_field(PrivateSum, "reproducible")

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if (self.noise is None) == (self.epsilon is None) and not (self.masked and self.noise is None):
            got = "both" if self.noise is not None else "neither"
            raise ValueError(
                f"[privacy] needs either noise or epsilon (got {got}); set noise = 1.1, a multiplier, or "
                "epsilon = 4.0, a target after all rounds; or masked = true, which needs neither"
            )
        defaults = type(self).model_fields
        idle = [name for name in ("delta", "reproducible") if getattr(self, name) != defaults[name].default]
        if idle and not self.noisy:
            raise ValueError(f"privacy.{idle[0]} has no effect without noise; remove it, or set noise = 1.1")
        return self

    @property
    def noisy(self) -> bool:
        """Whether the server adds noise."""
        return self.noise is not None or self.epsilon is not None


def make_privacy(section: PrivacyConfig, run: RunConfig) -> PrivateSum:
    """Make the noisy sum of a run; the noise is computed where a target epsilon is given."""
    noise, delta = section.noise, section.delta
    if noise is None:
        assert section.epsilon is not None  # one of the two is given
        noise = noise_for(section.epsilon, delta, run.fraction, run.rounds)
    clip = {} if section.clip is None else {"clip": section.clip}
    return PrivateSum(noise, run.fraction, **clip, delta=delta, reproducible=section.reproducible)


def recipe_of(config: Config) -> Recipe:
    """Make the recipe of a configuration, with what [privacy] asks for: noise, or a cap for masked sums."""
    recipe = make_recipe(config.recipe)
    if config.privacy is None:
        return recipe
    if not config.privacy.noisy:
        return masked(recipe)
    if config.recipe.values.get("when_zero", "keep") != "keep":
        raise ConfigError(
            "recipe.when_zero has no effect with [privacy] (got "
            f"{config.recipe.values['when_zero']!r}), where a score of 0 adds nothing to the noisy sum; remove it"
        )
    return private(recipe, make_privacy(config.privacy, config.run))


def make_collect(config: Config, recipe: Recipe) -> InTime | FactsFirst:
    """Make the collector of answers; the sample of a private recipe is secret."""
    run, section, privacy = config.run, config.privacy, privacy_of(recipe)
    selection = make_selection(run, secret=privacy is not None and not privacy.reproducible)
    if section is None or not section.masked:
        return FactsFirst(selection) if run.facts == "first" else InTime(selection)
    if run.facts == "together":
        raise ConfigError(
            'run.facts = "together" cannot be combined with privacy.masked: weights must be known before updates are '
            "masked; remove run.facts"
        )
    return FactsFirst(selection, Masking() if section.clip is None else Masking(section.clip))


def require_account() -> Any:
    """Import dp-accounting, or say how to install it; called before a run starts."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "[privacy] needs dp-accounting (not installed); install it with: pip install dp-accounting"
        ) from None
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of orders that it skips; the bound stays valid
    return dp_accounting


@lru_cache(maxsize=512)
def _epsilon(rounds: Rounds, delta: float) -> float:
    """Epsilon at delta of all rounds together; neighbours differ in one client, added or removed."""
    library = require_account()
    from dp_accounting import rdp

    account = rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for noise, fraction, times in rounds:
        account.compose(library.PoissonSampledDpEvent(fraction, library.GaussianDpEvent(noise)), times)
    return float(account.get_epsilon(delta))


def epsilon_after(noise: float, fraction: float, rounds: int, delta: float = 1e-5) -> float:
    """Epsilon at delta after this many rounds.

    >>> round(epsilon_after(noise=1.1, fraction=0.01, rounds=1000, delta=1e-5), 2)
    1.71
    """
    return _epsilon(((noise, fraction, rounds),), delta)


@lru_cache(maxsize=64)
def noise_for(epsilon: float, delta: float, fraction: float, rounds: int) -> float:
    """The smallest noise multiplier, to a thousandth, whose epsilon after all rounds is within the target.

    >>> noise = noise_for(epsilon=2.0, delta=1e-5, fraction=0.1, rounds=20)
    >>> epsilon_after(noise, 0.1, 20) <= 2.0 < epsilon_after(noise - 0.002, 0.1, 20)
    True
    """
    low, high = 0.0, 1.0
    while epsilon_after(high, fraction, rounds, delta) > epsilon:
        low, high = high, 2 * high
        if high > WIDEST:
            raise ConfigError(
                f"no noise multiplier up to {WIDEST:g} reaches epsilon {epsilon:g} at delta {delta:g} after {rounds} "
                "rounds; set a larger epsilon, fewer rounds or a smaller run.fraction"
            )
    while high - low > PRECISION:
        middle = (low + high) / 2
        enough = epsilon_after(middle, fraction, rounds, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def epsilon_of_releases(privacy: PrivateSum, releases: Sequence[Release]) -> float:
    """Epsilon of all releases of a run, repeated rounds included.

    >>> from fedmerit.core.server.private_sum import PrivateSum
    >>> release = Release(1, 1.1, 0.01)
    >>> round(epsilon_of_releases(PrivateSum(1.1, 0.01), [release] * 1000), 2)
    1.71
    """
    counted = sorted(Counter((one.multiplier, one.fraction) for one in releases).items())
    rounds = tuple((noise, fraction, times) for (noise, fraction), times in counted)
    return _epsilon(rounds, privacy.delta)
