"""[recipe]: a named recipe, and parts in place of its own; names, keys and ranges are those that parts declare.

    recipe = { name = "robust", limits = [{ name = "cap", times = 3.0 }], server = { optimizer = "momentum" } }

A key is a field of `Recipe`. A part is a name, or a table with a `name` and settings; a table without a name keeps the
part of the named recipe and changes its settings. A list replaces the whole list.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, TypeAlias, Union, get_args, get_origin

from pydantic import ConfigDict, model_validator

from fedmerit.config.old_keys import renamed
from fedmerit.config.own import call_own, import_own, is_own, own_part
from fedmerit.config.score_forms import RANKING, SCORES, check_length, finish_score
from fedmerit.config.sections import Section, foreign
from fedmerit.core.criteria.criterion import Criterion, criterion
from fedmerit.core.criteria.reputation import REPUTATION, Reputation
from fedmerit.core.criteria.table import find_criterion
from fedmerit.core.models.grouping import Grouping, OneGroup
from fedmerit.core.models.rewards import Reward, Whole
from fedmerit.core.models.shared import OneModel
from fedmerit.core.parts import ACCOUNTED, PARTS, Setting, Slot, name_of, settings
from fedmerit.core.recipe import PRIORITIZED, Recipe, WhenZero
from fedmerit.core.recipes import RECIPES, shares_of
from fedmerit.core.search.search import Fixed, Weighting
from fedmerit.core.server.optimizers import SGD, ServerOptimizer
from fedmerit.core.server.server import Aggregator, Mean, Server
from fedmerit.core.stages.claims import Anchor
from fedmerit.core.stages.stages import Stage
from fedmerit.core.types import Family
from fedmerit.core.weights.limits import Cap
from fedmerit.core.weights.normalise import NORMALISATIONS, Normalise, Scale
from fedmerit.core.weights.ranking import Ranked
from fedmerit.core.weights.scores import Prioritized, Score, WeightedMean
from fedmerit.errors import ConfigError, UnknownName, UserError, did_you_mean

FIELDS: tuple[str, ...] = tuple(one.name for one in fields(Recipe))
"""The keys of [recipe] besides `name`."""
SERVER_KEYS: Mapping[str, Slot] = {"aggregator": "aggregator", "optimizer": "optimizer"}
SLOT_OF: Mapping[Any, Slot] = {
    Criterion: "criterion",
    Reputation: "criterion",
    Grouping: "grouping",
    Reward: "reward",
    Aggregator: "aggregator",
    ServerOptimizer: "optimizer",
}
"""The types of settings that hold a part."""
HIDDEN = {"private-sum": "set [privacy], which makes it"}
"""Registered parts that no recipe names."""
IN_THE_NAME = ("objective", "method")
"""Settings of criteria that their names have: validated:OBJECTIVE, contribution:METHOD."""
WEIGHTING_KEYS = ("criteria", "score", "normalise")
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
    """[recipe]: the name of a recipe and the parts in place of its own, as plain values.

    >>> RecipeConfig.model_validate({"name": "prioritized", "criteria": "LD > DS"}).values
    {'name': 'prioritized', 'criteria': ['LD', 'DS']}
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "fedavg"

    @model_validator(mode="before")
    @classmethod
    def _as_plain_values(cls, value: Any) -> Any:
        if isinstance(value, RecipeConfig):
            return value.values
        try:
            plain = _plain({"name": value} if isinstance(value, str) else value, "recipe", top=True)
        except UserError as error:
            raise foreign(str(error)) from None
        if isinstance(plain.get("criteria"), str):
            plain["criteria"] = split_names(plain["criteria"])
        return plain

    @model_validator(mode="after")
    def _can_be_made(self) -> RecipeConfig:
        try:
            check_recipe(self.values)
        except UserError as error:
            raise foreign(str(error)) from None
        return self

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
    name = str(values["name"])
    if is_own(name):
        _refuse_keys("recipe", name, (key for key in values if key != "name"), FIELDS)
    else:
        _Maker(_stand_in).recipe(values)


def make_score(value: Any, priority: Sequence[str], path: str = "recipe.score") -> Score:
    """A score by its name, or by a table with its settings, for criteria in this order.

    >>> make_score({"name": "weighted-mean", "weights": [0.75, 0.25]}, ["LD", "DS"])
    WeightedMean(weights=(0.75, 0.25))
    """
    return _Maker(import_part).score(_plain(value, path), priority, path, PRIORITIZED)


def make_normalise(value: Any, path: str = "recipe.normalise") -> Normalise:
    """How columns come to one scale, by name or as `{name = "scale", bounds = {DS = 500}}`."""
    return _Maker(import_part).normalise(_plain(value, path), path)


def make_criteria(value: Any, path: str = "recipe.criteria") -> tuple[Criterion, ...]:
    """Criteria by names, or tables with a name and settings, in priority order.

    >>> make_criteria("CB > DS")
    (CB, DS)
    """
    return _Maker(import_part).criteria(_plain(value, path), path)


def make_limit(value: Any, path: str = "recipe.limits.0") -> Any:
    """One limit by its name, or by a table with its settings."""
    return _Maker(import_part).part("limit", _plain(value, path), path)


def split_names(text: str) -> list[str]:
    """ "DS,CB" and "DS > CB" as a list of names."""
    return [part.strip() for part in re.split(r"[>,]", text) if part.strip()]


def part_names(slot: Slot) -> tuple[str, ...]:
    """The names of a slot that a configuration can use.

    >>> part_names("limit")
    ('cap', 'site-cap')
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
    parts: Mapping[Slot, Any] = {
        "score": Prioritized(),
        "stage": Anchor(),
        "limit": Cap(),
        "models": OneModel(),
        "grouping": OneGroup(),
        "reward": Whole(),
        "search": Fixed(),
        "aggregator": Mean(),
        "optimizer": SGD(),
    }
    return parts[slot]


class _Maker:
    """Makes the parts of one recipe; `own` makes those that a user's module defines."""

    def __init__(self, own: Own) -> None:
        self._own = own
        self._base: Weighting | None = None
        self._score: Any = None

    def recipe(self, values: Mapping[str, Any]) -> Recipe:
        """The named recipe with the given fields in place of its own."""
        name, given = str(values["name"]), {key: value for key, value in values.items() if key != "name"}
        base = self._named_recipe(name)
        _refuse_keys("recipe", name, given, FIELDS)
        changes: dict[str, Any] = {}
        if "criteria" in given:
            changes["criteria"] = self.criteria(given["criteria"], "recipe.criteria")
        priority = tuple(one.name for one in changes.get("criteria", base.criteria))
        normalise = base.normalise
        if "normalise" in given:
            normalise = changes["normalise"] = self.normalise(given["normalise"], "recipe.normalise", base.normalise)
        score = base.score
        if name == "fedval":  # its weights are of the objectives, and need not sum to 1
            score = changes["score"] = WeightedMean(shares_of((), len(priority))) if priority else score
        if "score" in given:
            score = self.score(given["score"], priority, "recipe.score", score, as_shares=name == "fedval")
            changes["score"] = score
        if "when_zero" in given:
            hint = Setting("when_zero", WhenZero, None, "", MISSING)
            changes["when_zero"] = _checked(hint, given["when_zero"], "recipe.when_zero")
        self._base, self._score = Weighting(priority, score, normalise), given.get("score")
        changes |= self._parts(given, base)
        with _at("recipe"):
            return replace(base, **changes)

    def _named_recipe(self, name: str) -> Recipe:
        if is_own(name):
            return own_recipe(name)
        if name not in RECIPES:
            raise ConfigError(renamed("recipe.name", name) or str(UnknownName("recipe", name, RECIPES)))
        return RECIPES[name][0]()

    def _parts(self, given: Mapping[str, Any], base: Recipe) -> dict[str, Any]:
        """The fields that are parts or lists of parts."""
        made: dict[str, Any] = {}
        if "stages" in given:
            entries = _entries(given["stages"], "recipe.stages")
            made["stages"] = tuple(self.stage(value, path) for path, value in entries)
        if "limits" in given:
            entries = _entries(given["limits"], "recipe.limits")
            made["limits"] = tuple(self.part("limit", value, path) for path, value in entries)
        if "models" in given:
            if isinstance(given["models"], int):
                raise ConfigError(str(renamed("recipe.models", "a number")))
            made["models"] = self.part("models", given["models"], "recipe.models", base.models)
        if "search" in given:
            made["search"] = self.part("search", given["search"], "recipe.search", base.search)
        if "server" in given:
            made["server"] = self.server(given["server"], "recipe.server", base.server)
        return made

    def criteria(self, value: Any, path: str) -> tuple[Criterion, ...]:
        """Criteria in priority order, as a list or as text."""
        names = split_names(value) if isinstance(value, str) else value
        made = tuple(self.criterion(entry, where) for where, entry in _entries(names, path))
        if not made:
            raise ConfigError(f'{path}: needs at least one criterion, for example ["DS", "CB"] (got none)')
        return made

    def criterion(self, value: Any, path: str) -> Criterion:
        """A criterion by its name, with the settings of a table in place of its own."""
        name, given = _named(value, path)
        if name is None:
            raise ConfigError(f"{path}: give the name of a criterion, or a table with a name (got {value!r:.80})")
        made: Criterion = self._changed("criterion", self._find_criterion(name, path), given, path, name)
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
        name, _ = _named(value, path)
        if name is None or name in PARTS["stage"] or is_own(name):
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
        name, given = _named(value, path)
        if name is None:
            if base is None:
                raise ConfigError(f"{path}: give a name, or a table with a name (got {value!r:.80})")
            return self._changed(slot, base, given, path, name_of(base))
        if is_own(name):
            _refuse_keys(path, name, given, ())
            return self._own(slot, name)
        kind = _find_part(slot, name, path)
        made = self._settings(slot, name, kind, given, path)
        missing = [one for one in settings(kind).values() if one.required and one.name not in made]
        if missing:
            raise ConfigError(f"{path}: {name} needs `{missing[0].name}`, {missing[0].about}")
        with _at(path):
            return kind(**made)

    def _changed(self, slot: Slot, base: Any, given: Mapping[str, Any], path: str, name: str) -> Any:
        """The part with other settings."""
        if not given:
            return base
        made = self._settings(slot, name, type(base), given, path, base)
        with _at(path):
            return replace(base, **made)

    def _settings(
        self, slot: Slot, name: str, kind: Any, given: Mapping[str, Any], path: str, base: Any = None
    ) -> dict[str, Any]:
        """The given settings of a class as values of their declared types."""
        takes = _takes(slot, kind)
        _refuse_keys(path, name, given, takes, {other: _takes(slot, one) for other, one in _table(slot).items()})
        return {
            key: self._setting(takes[key], value, f"{path}.{key}", getattr(base, key, None))
            for key, value in given.items()
        }

    def _setting(self, one: Setting, value: Any, path: str, base: Any) -> Any:
        slot = next((SLOT_OF[option] for option in _options(one.type) if option in SLOT_OF), None)
        if slot == "criterion":
            name, given = _named(value, path)
            if name is not None or base is None:
                raise ConfigError(
                    f"{path}: give a table of settings (got {value!r:.80}); the name says which criterion"
                )
            return self._changed("criterion", base, given, path, base.name)
        if slot is not None:
            return self.part(slot, value, path, base)
        if one.name == "among" and not isinstance(value, str):
            return tuple(self.weighting(entry, where) for where, entry in _entries(value, path))
        return _checked(one, value, path)

    def weighting(self, value: Any, path: str) -> Weighting:
        """One of search.among; what is not given is the recipe's own."""
        assert self._base is not None  # a recipe is made, and its search last
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: must be a table with {', '.join(WEIGHTING_KEYS)} (got {value!r:.80})")
        _refuse_keys(path, "a weighting", value, WEIGHTING_KEYS)
        priority, score, normalise = self._base.priority, self._base.score, self._base.normalise
        if "criteria" in value:
            priority = tuple(one.name for one in self.criteria(value["criteria"], f"{path}.criteria"))
        if "score" in value:
            score = self.score(value["score"], priority, f"{path}.score", score)
        elif self._score is not None and "criteria" in value:  # a capacity is in words of the criteria
            score = self.score(self._score, priority, "recipe.score", score)
        if "normalise" in value:
            normalise = self.normalise(value["normalise"], f"{path}.normalise", normalise)
        return Weighting(priority, score, normalise)

    def score(
        self, value: Any, priority: Sequence[str], path: str, base: Any = None, *, as_shares: bool = False
    ) -> Score:
        """A score by its name or as a table; `rank` and `top` put ranks in place of its values."""
        name, given = _named(value, path)
        ranking = {key: _checked(RANKING[key], given.pop(key), f"{path}.{key}") for key in RANKING if key in given}
        if as_shares and "weights" in given and name in (None, "weighted-mean"):
            weights = _typed(tuple[float, ...], given["weights"], f"{path}.weights")
            with _at(path):
                check_length("weights", weights, priority)
                given["weights"] = list(shares_of(weights, len(priority)))
        inner = base.score if isinstance(base, Ranked) else base
        made = self.part("score", {**({"name": name} if name else {}), **given}, path, inner)
        with _at(path):
            if "top" in ranking and ranking.get("rank") != "top":
                raise ConfigError(f'`top` needs rank = "top" (got rank = {ranking.get("rank")!r})')
            score = finish_score(made, priority)
            return Ranked(score, ranking["rank"], ranking.get("top", RANKING["top"].default)) if ranking else score

    def normalise(self, value: Any, path: str, base: Any = None) -> Normalise:
        """One of the names, or public bounds."""
        name, given = _named(value, path)
        if name in NORMALISATIONS:
            _refuse_keys(path, name, given, (), {"scale": ("bounds",)})
            return name  # type: ignore[return-value]
        if name is None and not isinstance(base, Scale):
            raise ConfigError(
                f'{path}: give a name, for example {{name = "scale", bounds = {{DS = 500}}}} (got {value!r:.80})'
            )
        if name is not None and name not in PARTS["normalise"]:
            raise ConfigError(str(UnknownName(path, name, [*NORMALISATIONS, *PARTS["normalise"]])))
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
    if slot == "criterion" and kind not in PARTS[slot].values():
        return {}
    if not is_dataclass(kind):
        return {}
    return {key: one for key, one in settings(kind).items() if slot != "criterion" or key not in IN_THE_NAME}


def _refuse_keys(
    path: str,
    name: str,
    given: Collection[str] | Iterator[str],
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
        raise ConfigError(message or f"unknown key '{path}.{key}'{did_you_mean(key, takes)}; {valid}")


def _named(value: Any, path: str) -> tuple[str | None, dict[str, Any]]:
    """The name of a part and its settings, from a bare name or a table."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must be a name, or a table with a name (got {value!r:.80})")
    name = value.get("name")
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
    if value == "all" and types.NoneType in _options(one.type) and "all" not in one.choices:
        return None  # TOML has no null: every round, every judge
    made = _typed(one.type, value, path)
    broken = one.check(made)
    if broken is None:
        return made
    if isinstance(value, str) and one.choices and not {float, int} & set(_options(one.type)):
        raise ConfigError(str(UnknownName(f"value of {path}", value, one.choices)))
    raise ConfigError(f"{path}: must be {broken} (got {value!r:.80})")


def _typed(hint: Any, value: Any, path: str) -> Any:
    """Lists as tuples, tables as tuples of pairs, whole numbers as floats where floats are declared."""
    options = _options(hint)
    rows = next((option for option in options if get_origin(option) is tuple), None)
    if rows is None or (len(options) > 1 and not isinstance(value, list)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole and float in options and int not in options else value
    inner = get_args(rows)
    repeated = len(inner) == 2 and inner[1] is Ellipsis
    if repeated and get_origin(inner[0]) is tuple and get_args(inner[0])[0] is str:
        return _pairs(get_args(inner[0])[1], value, path)
    hints = [inner[0]] * len(value) if repeated and isinstance(value, list) else list(inner)
    if not isinstance(value, list) or len(value) != len(hints):
        size = "" if repeated else f" of {len(hints)} values"
        raise ConfigError(f"{path}: must be a list{size} (got {value!r:.80})")
    return tuple(
        _element(one, entry, f"{path}.{place}") for place, (one, entry) in enumerate(zip(hints, value, strict=True))
    )


def _pairs(hint: Any, value: Any, path: str) -> tuple[tuple[str, Any], ...]:
    """A table as pairs of a key and a value of this type."""
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must be a table (got {value!r:.80})")
    return tuple((key, _element(hint, one, f"{path}.{key}")) for key, one in value.items())


def _element(hint: Any, value: Any, path: str) -> Any:
    """One entry of a list, of its declared type."""
    return _checked(Setting("", hint, None, "", MISSING), value, path)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Name the key path in the errors of parts."""
    try:
        yield
    except UserError as error:
        raise ConfigError(f"{path}: {error}") from None


def _plain(value: Any, path: str, *, top: bool = False) -> Any:
    """Nested settings as a TOML file has them: tuples as lists, without nulls, a table of only a name as the name."""
    if isinstance(value, Mapping):
        _check_text(" ".join(map(str, value)), path)
        table = {str(key): _plain(one, f"{path}.{key}") for key, one in value.items() if one is not None}
        alone = not top and list(table) == ["name"] and isinstance(table["name"], str)
        return table["name"] if alone else table
    if isinstance(value, list | tuple):
        return [_plain(one, f"{path}.{place}") for place, one in enumerate(value)]
    if isinstance(value, str):
        return _check_text(value, path)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise ConfigError(f"{path}: must be a number of at most 64 bits (got {value!r:.40})")
    if isinstance(value, bool | int | float):
        return value
    raise ConfigError(f"{path}: must be text, a number, true or false, a list or a table (got {value!r:.80})")


def _check_text(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{path}: must be text in UTF-8; got a character that is not: {error.reason}") from None
    return text
