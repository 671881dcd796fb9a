"""[recipe]: a named recipe, and parts that replace its parts; names, keys and ranges are those that parts declare.

    recipe = { name = "robust", limits = [{ name = "cap", times = 3.0 }], server = { optimizer = "momentum" } }

A key is a field of `Recipe`. A part is a name, or a table with a `name` and settings; a table without a name keeps the
part of the named recipe and changes its settings. A list replaces the whole list.
"""

import json
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, NoReturn, TypeAlias, Union, cast, get_args, get_origin

from pydantic import ConfigDict, model_validator

from fedmerit.config.old_keys import renamed, suggest_key
from fedmerit.config.own import call_own, import_own, is_own, own_part
from fedmerit.config.sections import Section, foreign
from fedmerit.core.criteria.criterion import Criterion, criterion
from fedmerit.core.criteria.reputation import REPUTATION, Reputation
from fedmerit.core.criteria.table import find_criterion, symbol_of
from fedmerit.core.parts import ACCOUNTED, PARTS, Setting, Slot, load_parts, name_of, settings
from fedmerit.core.recipe import PRIORITIZED, Recipe, WhenZero
from fedmerit.core.recipes import RECIPES, find_setting, shares_of
from fedmerit.core.server.server import Server
from fedmerit.core.stages.stages import Stage
from fedmerit.core.types import Family
from fedmerit.core.weights.scores import Ranked, Score, WeightedMean
from fedmerit.core.weights.weigh import NORMALISATIONS, Normalise, Scale
from fedmerit.errors import ConfigError, UnknownName, UserError

load_parts()  # a configuration can name every part, not only those that are imported already
SCORES: Mapping[str, type[Any]] = {name: kind for name, kind in PARTS["score"].items() if kind is not Ranked}
"""The operators of configurations by name, each with its settings."""
RANKING: Mapping[str, Setting] = {"rank": settings(Ranked)["how"], "top": settings(Ranked)["top"]}
"""What every score takes: put the clients' ranks in place of their scores."""
FIELDS: tuple[str, ...] = tuple(one.name for one in fields(Recipe))
"""The keys of [recipe] besides `name`."""
SERVER_KEYS: Mapping[str, Slot] = {"aggregator": "aggregator", "optimizer": "optimizer"}
SLOT_OF: Mapping[str, Slot] = {
    "Criterion": "criterion",
    "Reputation": "criterion",
    "Grouping": "grouping",
    "Reward": "reward",
    "Aggregator": "aggregator",
    "ServerOptimizer": "optimizer",
}
"""The types of settings that hold a part, by name."""
STAND_INS: Mapping[Slot, str] = {
    "score": "prioritized",
    "stage": "anchor",
    "limit": "cap",
    "models": "one",
    "grouping": "one",
    "reward": "whole",
    "search": "fixed",
    "memory": "forget",
    "aggregator": "mean",
    "optimizer": "sgd",
}
"""The part of each slot that stands for a user's own while a configuration is only checked."""
HIDDEN = {"private-sum": "set [privacy], which makes it"}
"""Registered parts that no recipe names."""
IN_THE_NAME = ("objective", "method")
"""Settings of criteria that their names have: validated:OBJECTIVE, contribution:METHOD."""
WHEN_ZERO = Setting("when_zero", WhenZero, None, "", MISSING)
FAMILIES = ("contribution:METHOD", "validated:OBJECTIVE", "reputation:CRITERION")

MEMBERS: Mapping[Slot, tuple[str, ...]] = {
    "criterion": ("name", "family", "required_facts", "degree", "about", "__call__"),
    "score": ("__call__",),
    "stage": ("phase", "name", "measure"),
    "limit": ("__call__",),
    "models": ("start", "assign", "training_mode", "group", "move", "send_rewards", "test"),
    "grouping": ("__call__",),
    "reward": ("__call__",),
    "search": ("asks", "tolerance", "weightings", "visit", "choose"),
    "aggregator": ("__call__",),
    "optimizer": ("__call__",),
    "memory": ("recall",),
}
"""What a user's own part must have."""
WANTED: Mapping[Slot, str] = {
    "criterion": "a criterion, as @criterion makes them",
    "score": "a score: a function of the table, or a class of such values",
    "search": "a search, with the members of fedmerit.core.search.search.Search",
    "optimizer": "a server optimizer: (model, aggregate, own, index)",
}
Own: TypeAlias = Callable[[Slot, str], Any]


class RecipeConfig(Section):
    """[recipe]: the name of a recipe and the parts that replace its parts, as plain values.

    >>> RecipeConfig.model_validate({"name": "prioritized", "criteria": "label diversity > DS"}).values
    {'name': 'prioritized', 'criteria': ['LD', 'DS']}
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "fedavg"

    @model_validator(mode="before")
    @classmethod
    def _can_be_made(cls, value: Any) -> Any:
        try:
            name, values = _named(_plain(value.values if isinstance(value, RecipeConfig) else value), "recipe")
            values = {"name": name or cls.model_fields["name"].default, **values}
            if isinstance(values.get("criteria"), str):
                values["criteria"] = split_names(values["criteria"])
            check_recipe(values)
            values |= {"criteria": list(map(_with_symbol, values["criteria"]))} if "criteria" in values else {}
        except UserError as error:
            raise foreign(str(error)) from None
        return values

    @property
    def values(self) -> dict[str, Any]:
        """The plain values, with the name first."""
        return {"name": self.name, **(self.model_extra or {})}


def make_recipe(config: RecipeConfig) -> Recipe:
    """The recipe that a configuration names; a user's own parts are imported.

    >>> make_recipe(RecipeConfig(name="fedavg")).priority
    ('DS',)
    """
    return _Maker(import_part).recipe(config.values)


def check_recipe(values: Mapping[str, Any]) -> None:
    """Make the recipe as far as that works without a user's code: a configuration may be read without running it."""
    name = values["name"]
    if is_own(name):
        _refuse_keys("recipe", name, values.keys() - {"name"}, FIELDS)
    else:
        _Maker(_stand_in).recipe(values)


def make_score(value: Any, priority: Sequence[str], path: str = "recipe.score") -> Score:
    """A score by its name, or by a table with its settings, for criteria in this order.

    >>> make_score({"name": "weighted-mean", "weights": [0.75, 0.25]}, ["LD", "DS"])
    WeightedMean(weights=(0.75, 0.25))
    """
    return _Maker(import_part).score(_plain(value), priority, path, PRIORITIZED)


def make_normalise(value: Any, path: str = "recipe.normalise") -> Normalise:
    """How columns come to one scale, by name or as `{name = "scale", bounds = {DS = 500}}`."""
    return _Maker(import_part).normalise(_plain(value), path)


def make_limit(value: Any, path: str = "recipe.limits.0") -> Any:
    """One limit by its name, or by a table with its settings."""
    return _Maker(import_part).part("limit", _plain(value), path)


def split_names(text: str) -> list[str]:
    """ "DS,CB" and "DS > CB" as a list of names."""
    return [part.strip() for part in re.split(r"[>,]", text) if part.strip()]


def _with_symbol(value: Any) -> Any:
    """An entry of recipe.criteria with the criterion's symbol, so that equal recipes have equal values."""
    return symbol_of(value) if isinstance(value, str) else {**value, "name": symbol_of(value["name"])}


def part_names(slot: Slot) -> tuple[str, ...]:
    """The names of a slot that a configuration can use.

    >>> part_names("limit")
    ('cap',)
    """
    return tuple(SCORES) if slot == "score" else tuple(name for name in PARTS[slot] if name not in HIDDEN)


def import_part(slot: Slot, name: str) -> Any:
    """A user's own part, by `module:attribute`."""
    return own_part(slot, name, WANTED.get(slot, f"a part of the slot {slot}"), MEMBERS[slot])


def _stand_in(slot: Slot, name: str) -> Any:
    """What takes the place of a user's own part while a configuration is only checked: it gives all that others need.

    A name of the wrong form is an error already here.
    """
    if slot == "criterion":
        return criterion(name, Family.TARGET, name, degree=True, gives=ACCOUNTED)(
            lambda cohort, history: NotImplemented
        )
    return PARTS[slot][STAND_INS[slot]]()


class _Maker:
    """Makes the parts of one recipe; `own` makes those that a user's module defines."""

    def __init__(self, own: Own) -> None:
        self._own = own

    def recipe(self, values: Mapping[str, Any]) -> Recipe:
        """Make the named recipe, with the given fields replaced."""
        name, given = _named(values, "recipe")
        base = self._named_recipe(str(name))
        _refuse_keys("recipe", str(name), given, FIELDS)
        changes = {key: self._field(key, given[key], base) for key in FIELDS if key in given and key != "score"}
        priority = tuple(one.name for one in changes.get("criteria", base.criteria))
        score = base.score
        if name == "fedval":  # its weights are of the objectives, and need not sum to 1
            score = changes["score"] = WeightedMean(shares_of((), len(priority)))
        if "score" in given:
            changes["score"] = self.score(given["score"], priority, "recipe.score", score, as_shares=name == "fedval")
        with _at("recipe"):
            return replace(base, **changes)

    def _named_recipe(self, name: str) -> Recipe:
        if is_own(name):
            return own_recipe(name)
        if name not in RECIPES:
            message = renamed("recipe.name", name) or find_setting(name)
            raise ConfigError(message or str(UnknownName("recipe", name, RECIPES)))
        return RECIPES[name][0]()

    def _field(self, key: str, value: Any, base: Recipe) -> Any:
        """The value of one field of the recipe, but for the score, which is in words of the criteria."""
        path = f"recipe.{key}"
        match key:
            case "criteria":
                return self.criteria(value, path)
            case "normalise":
                return self.normalise(value, path, base.normalise)
            case "when_zero":
                return _checked(WHEN_ZERO, value, path)
            case "stages":
                return tuple(self.stage(one, where) for where, one in _entries(value, path))
            case "limits":
                return tuple(self.part("limit", one, where) for where, one in _entries(value, path))
            case "server":
                return self.server(value, path, base.server)
        slot: Any = key  # models, search, memory
        return self.part(slot, value, path, getattr(base, key))

    def criteria(self, value: Any, path: str) -> tuple[Criterion, ...]:
        """Criteria in priority order, as a list or as text."""
        names = split_names(value) if isinstance(value, str) else value
        made = tuple(self.criterion(entry, where) for where, entry in _entries(names, path))
        if not made:
            raise ConfigError(f'{path}: needs at least one criterion, for example ["DS", "CB"] (got none)')
        return made

    def criterion(self, value: Any, path: str) -> Criterion:
        """Find a criterion by its name, and replace settings by those of a table."""
        name, given = _named(value, path, "criterion")
        base = self._find_criterion(name, path)
        made: Criterion = self._build("criterion", name, type(base), given, path, base)
        return made

    def _find_criterion(self, name: str, path: str) -> Any:
        past = name.removeprefix(REPUTATION)
        if past != name and is_own(past):
            return Reputation(self._find_criterion(past, path))
        if is_own(name):
            return self._own("criterion", name)
        message = renamed(path, name)
        if message:
            raise ConfigError(message)
        with _at(path):
            return find_criterion(name)

    def stage(self, value: Any, path: str) -> Any:
        """A stage by its name, or a criterion that the server measures."""
        name, _ = _named(value, path, "stage")
        if name in PARTS["stage"] or is_own(name):
            return self.part("stage", value, path)
        try:
            find_criterion(name)
        except UnknownName:
            raise ConfigError(f"{path}: {UnknownName('stage', name, [*PARTS['stage'], *FAMILIES])}") from None
        except UserError as error:
            raise ConfigError(f"{path}: {error}") from None
        made = self.criterion(value, path)
        if not isinstance(made, Stage):
            raise ConfigError(
                f"{path}: the server does not measure {name}, so it is not a stage; use it in recipe.criteria"
            )
        return made

    def part(self, slot: Slot, value: Any, path: str, base: Any = None) -> Any:
        """A part by its name or as a table; a table without a name changes the settings of `base`."""
        name, given = _named(value, path, slot if base is None else None)
        if name is None:
            return self._build(slot, name_of(base), type(base), given, path, base)
        if is_own(name):
            _refuse_keys(path, name, given, ())
            return self._own(slot, name)
        return self._build(slot, name, _find_part(slot, name, path), given, path)

    def _build(self, slot: Slot, name: str, kind: Any, given: Mapping[str, Any], path: str, base: Any = None) -> Any:
        """A part of this class with the given settings; the others are those of `base`, or the defaults."""
        takes = _takes(slot, kind)
        _refuse_keys(path, name, given, takes, {other: _takes(slot, one) for other, one in _table(slot).items()})
        made = {
            key: self._setting(takes[key], value, f"{path}.{key}", getattr(base, key, None))
            for key, value in given.items()
        }
        for one in settings(kind).values() if base is None else ():
            if one.required and one.name not in made:
                raise ConfigError(f"{path}: {name} needs `{one.name}`, {one.about}")
        with _at(path):
            return kind(**made) if base is None else replace(base, **made) if made else base

    def _setting(self, one: Setting, value: Any, path: str, base: Any) -> Any:
        kinds = (getattr(option, "__name__", "") for option in _options(one.type))
        slot = next((SLOT_OF[kind] for kind in kinds if kind in SLOT_OF), None)
        if slot == "criterion":
            name, given = _named(value, path)
            if name is not None or base is None:
                raise ConfigError(
                    f"{path}: give a table of settings (got {value!r:.80}); the name says which criterion"
                )
            return self._build("criterion", base.name, type(base), given, path, base)
        if slot is not None:
            return self.part(slot, value, path, base)
        return _checked(one, value, path)

    def score(
        self, value: Any, priority: Sequence[str], path: str, base: Any = None, *, as_shares: bool = False
    ) -> Score:
        """A score by its name or as a table; `rank` and `top` put ranks in place of its values."""
        name, given = _named(value, path)
        ranking = {key: _checked(RANKING[key], given.pop(key), f"{path}.{key}") for key in RANKING if key in given}
        if as_shares and "weights" in given and name in (None, "weighted-mean"):
            weights = _checked(settings(WeightedMean)["weights"], given["weights"], f"{path}.weights")
            with _at(path):
                _check_length("weights", weights, priority)
                given["weights"] = list(shares_of(weights, len(priority)))
        inner = base.score if isinstance(base, Ranked) else base
        score: Score = self.part("score", {**({"name": name} if name else {}), **given}, path, inner)
        with _at(path):
            if "top" in ranking and ranking.get("rank") != "top":
                raise ConfigError(f'`top` needs rank = "top" (got rank = {ranking.get("rank")!r})')
            for key in ("weights", "shapley") if type(score) in SCORES.values() else ():
                _check_length(key, getattr(score, key, ()), priority)
            return Ranked(score, ranking["rank"], ranking.get("top", RANKING["top"].default)) if ranking else score

    def normalise(self, value: Any, path: str, base: Any = None) -> Normalise:
        """One of the names, or public bounds."""
        name, given = _named(value, path, None if isinstance(base, Scale) else "normalisation")
        if name in NORMALISATIONS:
            _refuse_keys(path, name, given, (), {"scale": ("bounds",)})
            return cast("Normalise", name)
        if name not in (None, *PARTS["normalise"]):
            raise ConfigError(str(UnknownName(path, name, [*NORMALISATIONS, *PARTS["normalise"]])))
        if isinstance(given.get("bounds"), dict):
            given["bounds"] = {symbol_of(key): bound for key, bound in given["bounds"].items()}
        made: Scale = self.part("normalise", {"name": "scale", "bounds": {}, **given}, path)
        return made

    def server(self, value: Any, path: str, base: Server) -> Server:
        """Aggregator and optimizer; what is not given stays."""
        if not isinstance(value, dict):
            raise ConfigError(f'{path}: must be a table such as {{optimizer = "momentum"}} (got {value!r:.80})')
        _refuse_keys(path, "server", value, SERVER_KEYS)
        parts = {
            key: self.part(SERVER_KEYS[key], one, f"{path}.{key}", getattr(base, key)) for key, one in value.items()
        }
        return replace(base, **parts)


def own_recipe(name: str) -> Recipe:
    """The recipe that a user's module defines, or that its function makes."""
    found = import_own("recipe", name, "a Recipe, or a function that makes one,")
    recipe = call_own("recipe", name, found) if callable(found) else found
    if not isinstance(recipe, Recipe):
        raise ConfigError(f"recipe {name!r} must be or make a fedmerit.Recipe; got {type(recipe).__name__}")
    return recipe


def _check_length(key: str, values: Sequence[float], priority: Sequence[str]) -> None:
    """One value for each criterion, where there are any."""
    if values and len(values) != len(priority):
        raise ConfigError(f"{key} has {len(values)} values for {len(priority)} criteria; give one for each")


def _find_part(slot: Slot, name: str, path: str) -> Any:
    table = _table(slot)
    if name in table and name not in HIDDEN:
        return table[name]
    message = renamed(path, name) or (name in table and f"{path}: {name} cannot be named here; {HIDDEN.get(name)}")
    raise ConfigError(message or str(UnknownName(path, name, part_names(slot))))


def _table(slot: Slot) -> Mapping[str, type[Any]]:
    return SCORES if slot == "score" else PARTS[slot]


def _takes(slot: Slot, kind: Any) -> Mapping[str, Setting]:
    """The settings of a class that a configuration can change."""
    if not is_dataclass(kind) or (slot == "criterion" and kind not in PARTS[slot].values()):
        return {}
    return {key: one for key, one in settings(kind).items() if slot != "criterion" or key not in IN_THE_NAME}


def _refuse_keys(
    path: str,
    name: str,
    given: Iterable[str],
    takes: Collection[str],
    table: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Refuse keys that a part does not take; the message says what was meant, or which parts take them."""
    for key in given:
        if key in takes:
            continue
        message = renamed(f"{path}.{key}")
        others = [other for other, keys in (table or {}).items() if key in keys]
        if message is None and others:
            message = (
                f"{path}: {name} does not take {key!r}; it takes: {', '.join(takes) or 'no settings'}; "
                f"taken by: {', '.join(others)}"
            )
        valid = f"valid here: {', '.join(takes)}" if takes else f"{name} takes no settings"
        raise ConfigError(message or f"unknown key '{path}.{key}'{suggest_key(f'{path}.{key}', takes)}; {valid}")


def _named(value: Any, path: str, required: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The name of a part and its settings, from a bare name or a table; `required`: what there must be a name of."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must be a name, or a table with a name (got {value!r:.80})")
    name = value.get("name")
    if name is None and required:
        raise ConfigError(f"{path}: give the name of a {required}, or a table with a name (got {value!r:.80})")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{path}.name: must be text (got {name!r:.80})")
    return name, {key: one for key, one in value.items() if key != "name"}


def _entries(value: Any, path: str) -> list[tuple[str, Any]]:
    """The entries of a list, each with its key path."""
    if not isinstance(value, list):
        raise ConfigError(f"{path}: must be a list (got {value!r:.80})")
    return [(f"{path}.{place}", one) for place, one in enumerate(value)]


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _checked(one: Setting, value: Any, path: str) -> Any:
    """A plain value as its declared type has it, within its range."""
    options = _options(one.type)
    rows = next((option for option in options if get_origin(option) is tuple), None)
    if value == "all" and types.NoneType in options and "all" not in one.choices:
        return None  # TOML has no null: every round
    if rows is not None and isinstance(value, dict if _is_table(rows) else list):
        return _tuple(rows, value, path)
    if isinstance(value, int) and not isinstance(value, bool) and float in options and int not in options:
        value = float(value)
    if one.check(value) is None:
        return value
    if isinstance(value, str) and one.choices and not {float, int} & set(options):
        raise ConfigError(str(UnknownName(f"value of {path}", value, one.choices)))
    rule = "a table" if rows is not None and _is_table(rows) else one.rule
    raise ConfigError(f"{path}: must be {rule} (got {value!r:.80})")


def _is_table(rows: Any) -> bool:
    """Whether a tuple is one of pairs (text, value), which a configuration writes as a table."""
    first = get_args(rows)[0]
    return get_origin(first) is tuple and get_args(first)[0] is str


def _tuple(rows: Any, value: Any, path: str) -> tuple[Any, ...]:
    """A list as a tuple of its declared types, a table as a tuple of pairs."""
    kinds = get_args(rows)
    if isinstance(value, dict):
        kind = get_args(kinds[0])[1]
        return tuple((key, _element(kind, entry, f"{path}.{key}")) for key, entry in value.items())
    hints = [kinds[0]] * len(value) if kinds[-1] is Ellipsis else kinds
    if len(value) != len(hints):
        raise ConfigError(f"{path}: must be a list of {len(hints)} values (got {value!r:.80})")
    places = enumerate(zip(hints, value, strict=True))
    return tuple(_element(kind, entry, f"{path}.{place}") for place, (kind, entry) in places)


def _element(kind: Any, value: Any, path: str) -> Any:
    """One entry of a list or a table."""
    return _checked(Setting("", kind, None, "", MISSING), value, path)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Name the key path in the errors of parts."""
    try:
        yield
    except UserError as error:
        raise ConfigError(f"{path}: {error}") from None


def _plain(value: Any) -> Any:
    """Settings as a TOML file has them: tuples as lists, without nulls, a table of only a name as the name."""
    text = json.dumps(value, ensure_ascii=False, default=_refuse)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"recipe: must be text in UTF-8; got a character that is not: {error.reason}") from None
    return json.loads(text, object_hook=_plain_table)


def _refuse(value: object) -> NoReturn:
    raise ConfigError(f"recipe: must be text, numbers, true or false, lists and tables (got {value!r:.80})")


def _plain_table(table: dict[str, Any]) -> Any:
    given = {key: value for key, value in table.items() if value is not None}
    return given["name"] if list(given) == ["name"] and isinstance(given["name"], str) else given
