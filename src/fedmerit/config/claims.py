"""recipe.claims: how far clients are believed, by name or as a table; a closed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from fedmerit.config.sections import Positive, Section, name_of, named, sections_in
from fedmerit.core.stages import claims

Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class ClaimsConfig(Section):
    """A way to believe clients by name, with the keys that have an effect in it."""

    name: str
    about: ClassVar[str]

    @abstractmethod
    def make(self) -> claims.Claims | None:
        """The way itself; None: as told."""


class AsToldClaims(ClaimsConfig):
    """[recipe.claims] of the papers."""

    name: Literal["as-told"] = "as-told"
    about = "facts count as told, within their ranges: every recipe of the four papers"

    def make(self) -> None:
        """Nothing is bounded."""


class MedianClaims(ClaimsConfig):
    """[recipe.claims] bounded by medians."""

    name: Literal["median"] = "median"
    about = "claims within k medians of the round and of the client's own past; facts of rows as at first sight"
    k: Factor = Field(3.0, description="how many medians a claim may count as")
    change: Factor = Field(1.2, description="the factor by which a fact of a client's rows may differ from the first")
    enrolled: tuple[tuple[Annotated[int, Field(ge=0, strict=True)], Positive], ...] = Field(
        (), description="pairs of a client's number and its training rows, where they are known"
    )
    anchor: bool = Field(True, description="with a cap: no weight above twice the share of the rows that count")

    def make(self) -> claims.Claims:
        """Bounded claims."""
        return claims.Claims(self.k, self.change, self.enrolled, self.anchor)


AnyClaims: TypeAlias = Annotated[AsToldClaims | MedianClaims, Field(discriminator="name"), named("median")]
"""A way to believe clients by name."""

CLAIMS: Mapping[str, type[ClaimsConfig]] = {
    name_of(section): section for section in sections_in(AnyClaims) if issubclass(section, ClaimsConfig)
}
