"""recipe.aggregate and recipe.clip: how updates become one, each section beside the way to make it; a closed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from fedmerit.config.sections import Count, Positive, Section, name_of, named, refuse_idle, sections_in
from fedmerit.core.server import aggregators
from fedmerit.core.stages.clip import Clip

BelowHalf = Annotated[float, Field(ge=0, lt=0.5)]
Mix: TypeAlias = Literal["none", "nnm", "bucketing"]


class ClipConfig(Section):
    """[recipe.clip]: updates longer than this are cut to it before they are aggregated."""

    norm: Positive | Literal["median"] = Field(
        "median", description="the longest that an update counts: a length, or the `median` of the round's"
    )

    times: Positive = Field(1.0, description="how many medians, where norm is the `median`")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.norm != "median":
            refuse_idle(self, ("times",), 'with a length of your own; use norm = "median"')
        return self

    def make(self) -> Clip:
        """The part of the recipe."""
        return Clip(self.norm, self.times)


class AggregateConfig(Section):
    """An aggregator by name, with the keys that have an effect in it."""

    name: str
    about: ClassVar[str]

    @abstractmethod
    def make(self) -> aggregators.Aggregator:
        """The aggregator itself."""


class MeanAggregate(AggregateConfig):
    """[recipe.aggregate] that adds up."""

    name: Literal["mean"] = "mean"
    about = "the weighted mean: every recipe of the four papers"

    def make(self) -> aggregators.Aggregator:
        """The sum of weights times updates."""
        return aggregators.Mean()


class _Robust(AggregateConfig):
    """The keys of aggregators that a few clients cannot bend; some mix the updates before."""

    share: BelowHalf = Field(
        0.2, description="the share of the weight that is not trusted: cut at each end, or left out"
    )
    mix: Mix = Field(
        "none", description="mix updates before: `nnm` with those near them, `bucketing` at random, or `none`"
    )
    bucket: Count = Field(2, description="how many updates `bucketing` puts into one")

    until: Count | None = Field(None, description="the last round with it, then the mean; default: all rounds")

    cuts: ClassVar[bool] = False
    """Whether the aggregator itself cuts a share."""

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.mix != "bucketing":
            refuse_idle(self, ("bucket",), f'with mix = "{self.mix}"; use mix = "bucketing"')
        if not self.cuts and self.mix != "nnm":
            name = name_of(type(self))
            refuse_idle(self, ("share",), f'with name = "{name}" and mix = "{self.mix}"; use mix = "nnm"')
        return self

    @abstractmethod
    def plain(self) -> aggregators.Aggregator:
        """The aggregator without mixing."""

    def make(self) -> aggregators.Aggregator:
        """The aggregator, after mixing where that is set, in the rounds that are set."""
        return self._mixed() if self.until is None else aggregators.Early(self._mixed(), self.until)

    def _mixed(self) -> aggregators.Aggregator:
        match self.mix:
            case "nnm":
                return aggregators.NNM(self.plain(), self.share)
            case "bucketing":
                return aggregators.Bucketing(self.plain(), self.bucket)
        return self.plain()


class MedianAggregate(_Robust):
    """[recipe.aggregate] by the coordinate-wise median."""

    name: Literal["median"] = "median"
    about = "in each coordinate the value that halves the weight"

    def plain(self) -> aggregators.Aggregator:
        """The weighted median."""
        return aggregators.CoordinateMedian()


class TrimmedMeanAggregate(_Robust):
    """[recipe.aggregate] by the coordinate-wise trimmed mean."""

    name: Literal["trimmed-mean"] = "trimmed-mean"
    about = "in each coordinate the mean without `share` of the weight at each end"
    cuts = True

    def plain(self) -> aggregators.Aggregator:
        """The weighted trimmed mean."""
        return aggregators.TrimmedMean(self.share)


class GeometricMedianAggregate(_Robust):
    """[recipe.aggregate] by the geometric median."""

    name: Literal["geometric-median"] = "geometric-median"
    about = "the point with the least weighted distance to all updates (smoothed Weiszfeld)"
    smoothing: Positive = Field(1e-6, description="distances below this count as this")
    iterations: Count = Field(32, description="how often the point is moved")

    def plain(self) -> aggregators.Aggregator:
        """The weighted geometric median."""
        return aggregators.GeometricMedian(self.smoothing, self.iterations)


class MultiKrumAggregate(_Robust):
    """[recipe.aggregate] by multi-Krum."""

    name: Literal["multi-krum"] = "multi-krum"
    about = "the mean without `share` of the weight: those farthest from their neighbours"
    cuts = True

    def plain(self) -> aggregators.Aggregator:
        """The weighted multi-Krum."""
        return aggregators.MultiKrum(self.share)


AnyAggregate: TypeAlias = Annotated[
    MeanAggregate | MedianAggregate | TrimmedMeanAggregate | GeometricMedianAggregate | MultiKrumAggregate,
    Field(discriminator="name"),
    named("mean"),
]
"""An aggregator by name: add a class here, and it can be configured and documented."""

AGGREGATES: Mapping[str, type[AggregateConfig]] = {
    name_of(section): section for section in sections_in(AnyAggregate) if issubclass(section, AggregateConfig)
}
