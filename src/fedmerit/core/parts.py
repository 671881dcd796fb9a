"""Parts: the values that a recipe is made of. A part declares its settings, needs and gifts once, in its own file.

    @part("optimizer", "momentum")
    class Momentum:
        lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0

`part` makes a frozen dataclass, checks annotated fields when one is made, and registers the class under its name. The
Python check, the keys of a configuration, the tables of the documents and the JSON of the ledger are read from the
fields. A part may also declare (class attributes, all optional):

    needs           words that some part, or the host, must give
    demands         words that every other part of the recipe must give
    gives           words that this part gives
    takes           words that this part takes away from all others
    why             word -> reason and way out, for the message
    stages          stages that must run for this part
    required_facts  facts that it reads
    remembers       facts that the history keeps; PAIRS for the distances of pairs of clients
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from annotated_types import Interval

from fedmerit.errors import ConfigError, UnknownName

Slot: TypeAlias = Literal[
    "collect",
    "selection",
    "memory",
    "criterion",
    "stage",
    "score",
    "normalise",
    "limit",
    "search",
    "models",
    "grouping",
    "reward",
    "aggregator",
    "optimizer",
    "control",
]
Words: TypeAlias = frozenset[str]
NO_WORDS: Words = frozenset()
ACCOUNTED: Words = frozenset({"accounted"})
"""What a part gives that reveals nothing of a client but through the noisy sum of a private run."""
FACTS_ONLY: Words = frozenset({"facts only"})
"""What a part gives that reads no single update, so that clients can be weighed before they upload."""
PURE: Words = ACCOUNTED | FACTS_ONLY
PAIRS = "pairs"
"""Remembered by parts that compare clients by how near their updates were in all rounds so far."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Doc:
    """What a setting is, in a line for tables and help texts."""

    text: str


PARTS: dict[Slot, dict[str, type[Any]]] = {}
"""The closed table of parts by slot and by the name that configurations use."""


FOLDERS = ("collect", "criteria", "stages", "weights", "search", "models", "server")
"""The folders of core that hold parts: a new file in one of them needs no line elsewhere."""


@cache
def load_parts() -> None:
    """Import every file that holds parts, so that all names are in `PARTS`."""
    for folder in FOLDERS:
        package = importlib.import_module(f"fedmerit.core.{folder}")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")


@dataclass_transform(frozen_default=True)
def part(slot: Slot, name: str) -> Callable[[type[T]], type[T]]:
    """Make a frozen dataclass of a class, check its settings when a value is made, and register it under a name."""

    def register(cls: type[T]) -> type[T]:
        own: Callable[[Any], None] | None = cls.__dict__.get("__post_init__")

        def __post_init__(self: Any) -> None:  # noqa: N807
            check_settings(self)
            if own is not None:
                own(self)

        cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
        made = dataclass(frozen=True, slots=True)(cls)
        PARTS.setdefault(slot, {})[name] = made
        return made

    return register


def name_of(value: Any) -> str:
    """The name of a part in configurations; that of its class where it is not registered.

    >>> from fedmerit.core.weights.scores import Product
    >>> name_of(Product())
    'product'
    """
    kind = value if isinstance(value, type) else type(value)
    known = (name for table in PARTS.values() for name, registered in table.items() if registered is kind)
    return next(known, kind.__name__)


def slot_of(value: Any) -> Slot | None:
    """The slot that a part is registered for; None for a user-defined part that is not."""
    return next((slot for slot, table in PARTS.items() if type(value) in table.values()), None)


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared field of a part: its type without annotations, its range, what it is, and its default."""

    name: str
    type: Any
    interval: Interval | None
    about: str
    default: Any

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it accepts, where there are such."""
        return tuple(option for one in _options(self.type) if get_origin(one) is Literal for option in get_args(one))

    @property
    def rule(self) -> str:
        """What a value must be, in words."""
        bounds = _bounds(self.interval) if self.interval else ""
        kinds = [f"{_rule(one)}{bounds if one in (int, float) else ''}" for one in _options(self.type)]
        return " or ".join([*filter(None, kinds), *(f'"{choice}"' for choice in self.choices)])

    def check(self, value: Any) -> str | None:
        """What is wrong with a value, as a rule that it breaks; None where it fits."""
        if any(_fits(value, one) for one in _options(self.type)) and self._within(value):
            return None
        return self.rule

    def _within(self, value: Any) -> bool:
        if not _is_number(value):
            return True
        if not math.isfinite(value):
            return False
        one = self.interval
        return one is None or (
            (one.gt is None or value > one.gt)
            and (one.ge is None or value >= one.ge)
            and (one.lt is None or value < one.lt)
            and (one.le is None or value <= one.le)
        )


_SETTINGS: dict[Any, Mapping[str, Setting]] = {}


def settings(kind: Any) -> Mapping[str, Setting]:
    """The declared settings of a part's class, by name; read once from its annotations."""
    if kind in _SETTINGS:
        return _SETTINGS[kind]
    hints, found = get_type_hints(kind, include_extras=True), dict[str, Setting]()
    for field in fields(kind):
        hint, notes = hints[field.name], list[Any]()
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
        interval = next((note for note in notes if isinstance(note, Interval)), None)
        about = next((note.text for note in notes if isinstance(note, Doc)), "")
        default = field.default if field.default_factory is MISSING else field.default_factory()
        found[field.name] = Setting(field.name, hint, interval, about, default)
    return _SETTINGS.setdefault(kind, types.MappingProxyType(found))


def check_settings(value: Any) -> None:
    """Check every declared field of a part; the first that does not fit is an error."""
    for one in settings(type(value)).values():
        received = getattr(value, one.name)
        broken = one.check(received)
        if broken is None:
            continue
        of = f"`{one.name}` of {name_of(value)}"
        if isinstance(received, str) and one.choices:
            raise UnknownName(f"value of {of}", received, one.choices)
        raise ConfigError(f"{of} must be {broken} (got {received!r:.80})")


_RULES: Mapping[Any, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}


def _rule(hint: Any) -> str:
    """What a value of a type is called; nothing for words, which are listed, and for None."""
    if get_origin(hint) is Literal or hint in (None, types.NoneType):
        return ""
    if get_origin(hint) is tuple:
        return "a list"
    return _RULES.get(hint) or f"a value of type {getattr(hint, '__name__', hint)}"


def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a plain type; parts and tables are checked by whoever reads them."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is float:
        return _is_number(value)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is bool or hint is str:
        return isinstance(value, hint)
    if hint is None or hint is types.NoneType:
        return value is None
    if get_origin(hint) is tuple:
        return isinstance(value, tuple)
    return not isinstance(value, str | bool | int | float | np.generic | types.NoneType)


def _bounds(interval: Interval) -> str:
    low = f" above {interval.gt:g}" if interval.gt is not None else ""
    low = f" of at least {interval.ge:g}" if interval.ge is not None else low
    high = f" below {interval.lt:g}" if interval.lt is not None else ""
    high = f" up to {interval.le:g}" if interval.le is not None else high
    return low + (" and" if low and high else "") + high


def declared(value: Any, name: str) -> Any:
    """What a part declares; nothing where it does not."""
    return getattr(value, name, ())


def check_words(parts: Sequence[Any], host: Words = NO_WORDS, only: Callable[[str], bool] = bool) -> None:
    """Refuse parts that do not go together: a word that is needed and not given, or demanded and missing somewhere.

    parts   all parts of a run, the nested ones included
    host    words that the clients and the server give
    only    which words are checked: a recipe alone cannot say what its host will give

    >>> from fedmerit.core.models.personal import PersonalModels
    >>> from fedmerit.core.server.optimizers import Momentum
    >>> check_words([PersonalModels(), Momentum()], only=lambda word: word == "server model")
    Traceback (most recent call last):
    ...
    fedmerit.errors.ConfigError: momentum needs a model that the server moves, which personal does not give: clients ...
    """
    taken = {word: one for one in parts for word in declared(one, "takes")}
    given = (host | UNLESS_TAKEN | {word for one in parts for word in declared(one, "gives")}) - taken.keys()
    for one, word in _declared_words(parts, "demands", only):
        for other in sorted(parts, key=lambda other: slot_of(other) != "models"):  # no setting helps against these
            if other is not one and word not in declared(other, "gives"):
                text = f"{label(other)} cannot be combined with {label(one)}, which demands {WORDS.get(word, word)}"
                raise ConfigError(f"{text}{_reason(word, (other, one, *parts))}")
    for one, word in _declared_words(parts, "needs", only):
        if word not in given:
            filling = (other for other in parts if other is not one and slot_of(other) == GIVEN_BY.get(word, ""))
            other = taken.get(word) or next(filling, None)
            against = f", which {label(other)} does not give" if other is not None else ""
            text = f"{label(one)} needs {WORDS.get(word, word)}{against}"
            raise ConfigError(f"{text}{_reason(word, (one, other, *parts))}")


def _declared_words(
    parts: Sequence[Any], declaration: Literal["needs", "demands"], only: Callable[[str], bool]
) -> Iterator[tuple[Any, str]]:
    """Each part with each of its words; sorted, so that a message is the same in every process."""
    return ((one, word) for one in parts for word in sorted(declared(one, declaration)) if only(word))


def _reason(word: str, parts: Sequence[Any]) -> str:
    """The reason and way out of the first part that states one, after a colon."""
    reasons = (declared(one, "why") for one in parts)
    return next((f": {why[word]}" for why in reasons if why and word in why), "")


def label(value: Any) -> str:
    """What messages call a part."""
    own = getattr(value, "name", None)
    return own if isinstance(own, str) else name_of(value)


WORDS: Mapping[str, str] = {
    "shared model": "one model that all clients train",
    "server model": "a model that the server moves",
    "shared test": "one model that all clients are tested on",
    "weighted mean": "the weighted mean of the updates",
    "whole updates": "updates as they were sent, without a clip",
    "plain step": "the plain server step",
    "fixed weighting": "one weighting in all rounds",
    "accounted": "that only the noisy sum reveals anything about clients",
    "facts only": "parts that read no single update",
    "answers in their round": "that answers count in the round that asked for them",
    "everyone in round 1": "a first round that asks every client",
    "last answers": "a memory of the clients' last answers",
    "server rows": "rows of the server",
    "server training": "a server that can train on its own rows",
    "validation rows": "validation rows of the clients",
    "test rows": "test rows of the clients",
    "pooled rows": "the training rows of all clients in one place",
    "losses": "a learner that gives probabilities (`predict_proba`)",
    "evaluation": "clients that test models for the server",
    "personal storage": "clients that keep a personal model",
    "pulled training": "a learner with `train_pulled`",
    "control vectors": "a learner that takes and sends control vectors",
}
"""Words that parts need and give, as messages put them."""
UNLESS_TAKEN: Words = frozenset({"whole updates", "everyone in round 1", "answers in their round"})
"""Words that every run gives, unless a part takes them away."""
GIVEN_BY: Mapping[str, Slot] = {
    "shared model": "models",
    "server model": "models",
    "shared test": "models",
    "weighted mean": "aggregator",
    "plain step": "optimizer",
    "fixed weighting": "search",
    "last answers": "memory",
    "fact epochs": "selection",
}
"""The slot whose part gives a word, so that a message can name the part that does not."""


def unique(words: Iterable[T]) -> tuple[T, ...]:
    """Each once, in the order of their first mention."""
    return tuple(dict.fromkeys(words))
