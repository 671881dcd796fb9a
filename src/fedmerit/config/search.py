"""[recipe.search]: what clients are asked, and how their answers count; names of criteria as a list or a text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from fedmerit.config.own import own_part
from fedmerit.config.scores import AnyScore
from fedmerit.config.sections import Section, refuse_idle
from fedmerit.core.search.backtracking import Backtracking, Exchange, Orders, Reference
from fedmerit.core.search.search import Search, Weighting
from fedmerit.core.search.step_search import Among, BoldestFirst, By
from fedmerit.core.search.step_search import Count as CountBy
from fedmerit.core.types import Normalise, SplitName
from fedmerit.errors import ConfigError


def _split_names(value: Any) -> Any:
    """Accept "DS,CB" and "DS > CB" where a list of names is expected."""
    if isinstance(value, str):
        return tuple(part.strip() for part in re.split(r"[>,]", value) if part.strip())
    return value


Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_split_names)]


class WeightingConfig(Section):
    """One of recipe.search.among: a way to weigh; what is not given is the recipe's own."""

    priority: Names = ()
    score: AnyScore | None = None
    normalise: Normalise | None = None


class SearchConfig(Section):
    """[recipe.search]: what clients are asked in recipes device_aware (which order?) and adaptive (which step?)."""

    name: str | None = Field(
        None, description="a search of your own, module:attribute, in place of all other keys; default: ours"
    )
    orders: Orders = Field(
        "kendall", description="which order is tried next: the nearest, by name, a random one; `all`: the best of all"
    )
    reference: Reference = Field(
        "last", description="accept what is not worse than the last model, or than the best so far"
    )
    exchange: Exchange = Field(
        "batch", description="ask about all orders that are left in one exchange, or one after the other"
    )
    adjust_on: SplitName = Field(
        "validation",
        description="which rows decide: `validation`, or `test` as in the paper, which reports on them too",
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="weightings that differ by no more total variation count as one"
    )
    judges: Annotated[int, Field(ge=2, strict=True)] | Literal["round"] | None = Field(
        None,
        description="ask that many clients, drawn anew each round (and more while an order is undecided), or "
        "`round`: those that took part; default: all (device_aware), `round` (adaptive)",
    )
    confidence: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.95, description="how sure judges must be that a candidate is worse, or is not"
    )
    among: tuple[WeightingConfig, ...] = Field(
        (), description="weightings to choose from instead of orders: tables with priority, score, normalise"
    )

    steps: tuple[tuple[float, float], ...] | None = Field(
        None,
        description="pairs [length, carry] to choose from: model + length * update + carry * last move; "
        "default: none (device_aware), eight from bold to careful (adaptive)",
    )
    rungs: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None,
        description="try only steps at most so many rungs of length and carry from the last; default: all of `steps`",
    )
    by: By | None = Field(None, description="judge by `accuracy` (default of device_aware) or `loss` (of adaptive)")
    accept: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="the boldest candidate with this share of the best one's gain is taken: 0, not worse than before; "
        "1, the best; default 0.5 (device_aware), 0.8 (adaptive)",
    )
    count: CountBy | None = Field(
        None,
        description="the judges' gains by their rows, `mean` (default of device_aware), or each with one voice, "
        "`median` (of adaptive)",
    )
    majority: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="what was taken last stays unless this share of the judges gain more by another; default: 0, it "
        "never stays for that reason",
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.name is not None:
            others = [key for key in type(self).model_fields if key != "name"]
            refuse_idle(self, others, "beside a search of your own, which has its own settings; leave it out")
        if self.steps is not None and not self.steps:
            raise ValueError("steps has at least one pair [length, carry], for example [[1, 0.9], [1, 0]]; got none")
        if self.judges is None:
            refuse_idle(self, ("confidence",), "without judges: all clients are asked; set judges, or leave it out")
        return self

    @property
    def compares_gains(self) -> bool:
        """Whether a key says so: then candidates are compared in one exchange instead of one after the other."""
        keys = (self.steps, self.rungs, self.accept, self.count, self.majority)
        return any(key is not None for key in keys) or self.by == "loss" or self.judges == "round"

    def own(self, name: str) -> Search:
        """The search that the user's module defines."""
        members = ("asks", "judges", "tolerance", "weightings", "visit", "choose")
        search: Search = own_part(
            "search", name, "a search, with the members of fedmerit.core.search.search.Search", members
        )
        return search

    def backtracking(self, among: tuple[Weighting, ...]) -> Backtracking:
        """The search for an order [DAFL, Alg. 1]."""
        taken = self.model_dump(exclude={"name", "among", "steps", "rungs", "by", "accept", "count", "majority"})
        return Backtracking(**taken, among=among)

    def boldest(self, among: Among, default: BoldestFirst) -> BoldestFirst:
        """The search among steps and weightings; what is not given is as in `default`."""
        keys = ("orders", "reference", "exchange", "confidence")
        try:
            refuse_idle(self, keys, "where candidates are compared by their gains, in one exchange; leave it out")
        except ValueError as error:
            raise ConfigError(f"recipe.search: {error}") from None
        own = ("steps", "rungs", "by", "judges", "accept", "count", "majority")
        given = {key: value for key in own if (value := getattr(self, key)) is not None}
        return replace(default, **given, among=among, adjust_on=self.adjust_on, tolerance=self.tolerance)
