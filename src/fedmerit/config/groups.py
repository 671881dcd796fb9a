"""[recipe.groups] and [recipe.reward]: who is aggregated together, and what clients with personal models get back."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedmerit.config.sections import NotNegative, Positive, Section, refuse_idle
from fedmerit.core.models.grouping import ByCosine, Cut, Grouping, Linkage, OneGroup, Over
from fedmerit.core.models.rewards import Largest, Reward, Scope, Share, TopShare, Whole
from fedmerit.core.types import Personal


class GroupsConfig(Section):
    """[recipe.groups]: who is aggregated together in recipe m2f."""

    by: Literal["cosine", "none"] = Field("cosine", description="groups of like updates, or `none`: all together")
    linkage: Linkage = Field("average", description="the distance of two groups; `centroid`: of their sums")
    cut: Cut = Field(
        "gap",
        description="stop merging at the largest jump, the best `silhouette`, a `quantile` or a `constant`",
    )
    over: Over = Field("round", description="distances of this `round`, or the mean of `all` rounds so far")
    at: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None,
        description="least jump (default 0.03) or silhouette (0.15), quantile (0.5), distance (1.0): as `cut` is",
    )

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.by == "none":
            refuse_idle(self, ("linkage", "cut", "over", "at"), 'with by = "none": all are together; use by = "cosine"')
        return self

    def make(self) -> Grouping:
        """The grouping itself."""
        return ByCosine(self.linkage, self.cut, self.at, self.over) if self.by == "cosine" else OneGroup()


class RewardConfig(Section):
    """[recipe.reward]: what clients of recipe m2f get back, and what they do with it."""

    kind: Literal["top", "whole"] = Field("top", description="the largest entries of the aggregate, or all of it")
    share: Share = Field(
        "sum", description="share of entries: quality / `sum` (the paper), / `max` of the group, or `tanh` of it (CGSV)"
    )
    floor: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="the least share of entries for whoever has a weight above 0"
    )
    temperature: Positive = Field(1.0, description="shares to the power 1 / this: above 1 they are more alike")
    beta: Positive = Field(1.0, description="of share = `tanh`: the larger, the more alike are rewards")
    largest: Largest = Field("magnitude", description="largest by magnitude, or `signed` as gradients")
    scope: Scope = Field("model", description="largest of the whole model, or of each `layer`")
    exclude_own: bool = Field(False, description="take the client's own part out of its reward")
    training: Personal = Field(
        "keep", description="a client's own training is kept, or reset before the reward is added"
    )
    sigma: NotNegative = Field(0.05, description="a client takes a reward that lowers its accuracy by less than this")
    initial: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="share of the clients that train the first model; 0: everybody starts from the random one"
    )
    until: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        None, description="last round with rewards; after it clients finish their models alone; default: all have"
    )

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.kind == "whole":
            keys = ("share", "largest", "scope", "exclude_own", "floor", "temperature", "beta")
            refuse_idle(self, keys, 'with kind = "whole": everybody gets all; use kind = "top"')
        if self.share != "tanh":
            refuse_idle(self, ("beta",), f'with share = "{self.share}"; use share = "tanh", or leave it out')
        return self

    def make(self) -> Reward:
        """The reward itself."""
        if self.kind == "whole":
            return Whole()
        return TopShare(self.share, self.largest, self.scope, self.exclude_own, self.floor, self.temperature, self.beta)
