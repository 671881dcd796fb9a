"""Keys that recipes of a configuration share: caps, claims and contributions; step, aggregator and clip."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from fedmerit.config.aggregators import AnyAggregate, ClipConfig
from fedmerit.config.claims import AnyClaims
from fedmerit.config.sections import Section
from fedmerit.config.steps import AnyStep
from fedmerit.core.criteria.contribution import find_contribution
from fedmerit.core.recipe import Recipe


class RecipeConfig(Section):
    """A recipe by name, with the keys that have an effect in it."""

    name: str
    about: ClassVar[str]
    cap: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = Field(
        None, description="the most equal shares that one client may hold: 2.0; what is cut goes to the others"
    )
    cap_group: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="the share of the weight that all clients of one site may hold together, see task.sites"
    )
    claims: AnyClaims | None = Field(
        None, description="how far clients are believed, by name or as a table, see [recipe.claims]; default: `as-told`"
    )

    contributions: tuple[str, ...] | None = Field(
        None, description="contributions to measure beside the weights: `shapley`, `banzhaf`, `leave-one-out`, `cosine`"
    )

    @abstractmethod
    def make(self) -> Recipe:
        """The recipe itself."""

    def guarded(self, made: Recipe) -> Recipe:
        """The recipe with the caps, the bounds of claims and the contributions that were set in place of its own."""
        return replace(
            made,
            cap=made.cap if self.cap is None else self.cap,
            cap_group=made.cap_group if self.cap_group is None else self.cap_group,
            claims=made.claims if self.claims is None else self.claims.make(),
            contributions=made.contributions
            if self.contributions is None
            else tuple(map(find_contribution, self.contributions)),
        )


class OneModelConfig(RecipeConfig):
    """The keys of recipes in which all clients train one model."""

    step: AnyStep | None = Field(
        None, description="how the server moves the model, by name or as a table, see [recipe.step]; default: `plain`"
    )
    aggregate: AnyAggregate | None = Field(
        None, description="how updates become one, by name or as a table, see [recipe.aggregate]; default: `mean`"
    )
    clip: ClipConfig | None = Field(None, description="cut long updates, see [recipe.clip]; default: none are")
