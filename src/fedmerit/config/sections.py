"""Base class of configuration sections, and the error messages for wrong keys and values."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from fedmerit.config.old_keys import renamed, suggest_key
from fedmerit.core.parts import settings
from fedmerit.core.showing import visible
from fedmerit.errors import ConfigError, did_you_mean

Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
MOST_COUNT = 1_000_000_000
"""Upper bound of counts; more rounds, clients or rows are a typing mistake."""
Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]
Range = Annotated[
    tuple[Count, Count], BeforeValidator(lambda value: (value, value) if isinstance(value, int) else value)
]
"""[min, max], or one number for both."""
Share = Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)]


class Section(BaseModel):
    """A frozen section of a configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def core_field(kind: Any, name: str, **changes: Any) -> Any:
    """Make the pydantic field of a setting that a core class declares: default, range and description.

    `changes` replace the default (`default`) or the description (`description`).
    """
    one = settings(kind)[name]
    limits = {bound: getattr(one.interval, bound) for bound in ("gt", "ge", "lt", "le")} if one.interval else {}
    numbers = {"strict": True, "allow_inf_nan": False, **limits} if one.interval else {}
    return Field(**{"default": one.default, "description": one.about, **numbers, **changes})


def refuse_idle(section: Section, keys: Sequence[str], because: str) -> None:
    """Refuse changed keys that have no effect; `because` gives the reason and what to do."""
    idle = [key for key in keys if getattr(section, key) != type(section).model_fields[key].default]
    if idle:
        raise ValueError(f"{', '.join(idle)} has no effect {because}")


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields of a section, by the key that users write."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def validate(kind: type[S], values: Mapping[str, Any], within: str = "") -> S:
    """Make a section from plain values; one ConfigError names every mistake.

    `within` is the key under which users write the section.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        by_place: dict[tuple[str, ...], list[Any]] = {}
        for item in error.errors():  # a value that fits no member of a union has an error for each of them
            by_place.setdefault(tuple(_place(item["loc"], kind)[0]), []).append(item)
        problems = (_problem(items, kind, within) for items in by_place.values())
        raise ConfigError(visible("; ".join(dict.fromkeys(problems)))) from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"settings must be text in UTF-8 (got a character that is not: {error.reason})") from None


def foreign(message: str) -> PydanticCustomError:
    """The error for validators whose message is shown unchanged."""
    return PydanticCustomError("foreign_key", "{message}", {"message": message})


def _section_in(annotation: Any) -> type[Section] | None:
    """The section class within a type: itself, in a list or in a union; or None."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)


def _place(location: Sequence[str | int], kind: type[Section]) -> tuple[list[str], type[Section]]:
    """The keys that lead to a mistake, without pydantic's internal names, and the section of the last key."""
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


def _problem(items: Sequence[Any], kind: type[Section], within: str) -> str:
    """The pydantic errors of one key as one message: what is wrong, what was received, what to do."""
    item, (keys, section) = items[0], _place(items[0]["loc"], kind)
    key = ".".join([within, *keys] if within else keys)
    match item["type"]:
        case "foreign_key":
            return str(item["msg"])
        case "extra_forbidden":
            valid = fields_of(section)
            meant = _elsewhere(keys[-1], kind) or suggest_key(key, valid)
            return renamed(key) or f"unknown key {key!r}{meant}; valid here: {', '.join(sorted(valid))}"
        case "missing" if len(item["loc"]) == len(keys):
            return f"{key} is required (got none); add it"
        case "model_type":
            return f"{key}: must be a table such as [{key}] (got {item['input']!r:.80})"
        case "value_error" if isinstance(item["input"], Mapping):
            return f"{key}: {item['ctx']['error']}"  # keys that exclude each other; the error names them
    rules = list(dict.fromkeys(_rule(one) for one in items))
    rule = ", or ".join([rules[0], *(one.removeprefix("must be ") for one in rules[1:])])
    shown = repr(item["input"])
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f"{key}: {rule} (got {shown}){_way_out(item['input'], rule, fields_of(section).get(keys[-1]))}"


def _rule(item: Any) -> str:
    """What a value must be, from pydantic's "Input should be ..."."""
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    rule = re.sub(r"^\w+ should ", "must ", item["msg"]).replace("a valid tuple", "a list")
    rule = rule.replace("a valid integer", "a whole number").replace(" after validation", "")
    return rule[:1].lower() + rule[1:]


def _elsewhere(key: str, kind: type[Section]) -> str:
    """' (did you mean ...?)' for a key that another table of the file has, else an empty string."""
    tables = ((name, _section_in(field.annotation)) for name, field in fields_of(kind).items())
    homes = [name for name, table in tables if table and key != "name" and key in fields_of(table)]
    return f" (did you mean '{homes[0]}.{key}'?)" if homes else ""


def _way_out(value: Any, rule: str, field: FieldInfo | None) -> str:
    """The word that was meant, or the default of the key; an empty string where there is neither."""
    near = did_you_mean(value, re.findall("'([^']+)'", rule)) if isinstance(value, str) else ""
    default = field.default if field else None
    plain = isinstance(default, int | float | str) and default != ""
    return near or (f"; the default is {default!r}" if plain else "")


def parse_value(text: str) -> Any:
    """Parse a TOML value; other text is returned as it is, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
