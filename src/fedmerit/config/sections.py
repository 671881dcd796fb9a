"""What configurations are made of: frozen sections, also chosen by name, and the words for what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from fedmerit.config.old_keys import renamed
from fedmerit.core.parts import settings
from fedmerit.core.showing import visible
from fedmerit.errors import ConfigError, UnknownName, did_you_mean

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
MOST_COUNT = 1_000_000_000
"""More rounds, clients or rows than this are a slip of the pen."""
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
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


def validate(kind: type[S], values: Mapping[str, Any], within: str = "") -> S:
    """A section of this kind from plain values; every mistake is named in one ConfigError.

    `within` is the key under which users write the section.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = (_problem(item, _place(item["loc"], kind, within)) for item in error.errors())
        raise ConfigError(visible("; ".join(dict.fromkeys(problems)))) from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"settings are text in UTF-8; got a character that is none: {error.reason}") from None


def not_taken(kind: str, name: str, key: str, takes: Sequence[str], others: Sequence[str]) -> str:
    """The message for a key that belongs to other choices of the same kind."""
    return (
        f"{kind} {name} does not take {key!r}; it takes: {', '.join(takes) or 'no options'}; "
        f"{kind}s that take it: {', '.join(others)}"
    )


def foreign(message: str) -> PydanticCustomError:
    """For validators: a key that does not belong where it stands; the message is shown as it is."""
    return PydanticCustomError("foreign_key", "{message}", {"message": message})


class _Place(NamedTuple):
    """Where a mistake is: the keys that lead there, the section they end in, and what could be chosen instead of it."""

    keys: list[str]
    section: type[Section]
    choices: tuple[type[Section], ...]


def _place(location: Sequence[str | int], kind: type[Section], within: str) -> _Place:
    """Pydantic's location without what is not a key: the names of chosen sections, and its own names within a value."""
    keys, section = [within] if within else [], kind
    choices: tuple[type[Section], ...] = (kind,)
    options = choices  # the sections that the next part may lead into
    for part in location:
        if not options:
            break
        if isinstance(part, int):
            keys.append(str(part))
        elif len(options) > 1:
            section = next(option for option in options if name_of(option) == part)
            choices, options = options, (section,)
        else:
            if options[0] is not section:
                section, choices = options[0], options
            keys.append(part)
            field = fields_of(section).get(part)
            options = sections_in(field.annotation) if field else ()
    return _Place(keys, section, options if len(options) > 1 else choices)


def _problem(item: Any, place: _Place) -> str:
    """One pydantic error in our words."""
    key = ".".join(place.keys)
    match item["type"]:
        case "foreign_key":
            return str(item["msg"])
        case "extra_forbidden":
            return _unknown_key(key, place)
        case "union_tag_invalid":
            return str(UnknownName(place.keys[-1], item["ctx"]["tag"], map(name_of, place.choices)))
        case "union_tag_not_found":
            return f"{key}: give a name, or a table with a name (got {item['input']!r:.80})"
        case "missing":
            return f"{key} is required, and was not given"
        case "model_type":
            return f"{key}: must be a table such as [{key}] (got {item['input']!r:.80})"
    shown = repr(item["input"])
    rule = item["msg"].removeprefix("Value error, ")
    return f"{key}: {rule[:1].lower() + rule[1:]} (got {shown if len(shown) <= 80 else shown[:77] + '...'})"


def _unknown_key(path: str, place: _Place) -> str:
    new = renamed(path)
    if new:
        return new
    key, valid = place.keys[-1], list(fields_of(place.section))
    others = sorted(name_of(other) for other in place.choices if key in fields_of(other))
    if others:
        return not_taken(place.keys[-2], name_of(place.section), key, valid, others)
    return f"unknown key {path!r}{did_you_mean(key, valid)}; valid here: {', '.join(sorted(valid))}"
