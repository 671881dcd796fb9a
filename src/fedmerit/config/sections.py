"""What configurations are made of: frozen sections, and the messages for what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from fedmerit.config.old_keys import renamed
from fedmerit.core.parts import settings
from fedmerit.core.showing import visible
from fedmerit.errors import ConfigError, did_you_mean

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
MOST_COUNT = 1_000_000_000
"""More rounds, clients or rows than this are a slip of the pen."""
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Range = Annotated[
    tuple[Count, Count], BeforeValidator(lambda value: (value, value) if isinstance(value, int) else value)
]
"""[least, most], or one number for both."""
Share = Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)]


class Section(BaseModel):
    """A frozen part of the configuration that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def core_field(kind: Any, name: str, **changes: Any) -> Any:
    """The pydantic field of a setting that a class of the core declares: its default, range and line of help.

    `changes` replace the default (`default`) or the line (`description`) where the section has its own.
    """
    one = settings(kind)[name]
    limits = {bound: getattr(one.interval, bound) for bound in ("gt", "ge", "lt", "le")} if one.interval else {}
    numbers = {"strict": True, "allow_inf_nan": False, **limits} if one.interval else {}
    return Field(**{"default": one.default, "description": one.about, **numbers, **changes})


def refuse_idle(section: Section, keys: Sequence[str], because: str) -> None:
    """Refuse keys that were changed where they have no effect; `because` says what makes them idle, and the way out."""
    idle = [key for key in keys if getattr(section, key) != type(section).model_fields[key].default]
    if idle:
        raise ValueError(f"{', '.join(idle)} has no effect {because}")


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a section, by the names that users know."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def validate(kind: type[S], values: Mapping[str, Any], within: str = "") -> S:
    """A section of this kind from plain values; every mistake is named in one ConfigError.

    `within` is the key under which users write the section.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = (_problem(item, kind, within) for item in error.errors())
        raise ConfigError(visible("; ".join(dict.fromkeys(problems)))) from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"settings are text in UTF-8; got a character that is none: {error.reason}") from None


def foreign(message: str) -> PydanticCustomError:
    """For validators: a key that does not belong where it stands; the message is shown as it is."""
    return PydanticCustomError("foreign_key", "{message}", {"message": message})


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a type names, itself or in a list or a union with None; None where it names no section."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _place(location: Sequence[str | int], kind: type[Section]) -> tuple[list[str], type[Section]]:
    """The keys that lead to a mistake, without pydantic's own names within a value, and the section they end in."""
    keys, section = list[str](), kind
    inner: type[Section] | None = kind  # what the next part of the location is a key of
    for part in location:
        if inner is None:
            break
        keys.append(str(part))
        if isinstance(part, str):
            section = inner
            field = fields_of(section).get(part)
            inner = _section_in(field.annotation) if field else None
    return keys, section


def _problem(item: Any, kind: type[Section], within: str) -> str:
    """One pydantic error in our words."""
    keys, section = _place(item["loc"], kind)
    key = ".".join([within, *keys] if within else keys)
    match item["type"]:
        case "foreign_key":
            return str(item["msg"])
        case "extra_forbidden":
            valid = fields_of(section)
            return renamed(key) or (
                f"unknown key {key!r}{did_you_mean(keys[-1], valid)}; valid here: {', '.join(sorted(valid))}"
            )
        case "missing":
            return f"{key} is required, and was not given"
        case "model_type":
            return f"{key}: must be a table such as [{key}] (got {item['input']!r:.80})"
    shown = repr(item["input"])
    rule = item["msg"].removeprefix("Value error, ")
    return f"{key}: {rule[:1].lower() + rule[1:]} (got {shown if len(shown) <= 80 else shown[:77] + '...'})"
