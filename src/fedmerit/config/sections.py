"""What configurations are made of: frozen sections, the numbers in them, and sections that are chosen by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]


class Section(BaseModel):
    """A frozen part of the configuration that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def named(default: str) -> BeforeValidator:
    """Accept a bare name where a table with a `name` is expected; a table without one has the default's."""

    def table(value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        return {"name": default, **value} if isinstance(value, Mapping) else value

    return BeforeValidator(table)


def sections_in(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that a type names: none, one, or those that a union chooses from."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation,)
    return tuple(section for part in get_args(annotation) for section in sections_in(part))


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a section, by the names that users know."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def name_of(section: type[Section]) -> str:
    """The name by which a union chooses this section."""
    return str(section.model_fields["name"].default)
