"""Recipes as JSON: each part is stored as its class name and its settings, so that any program can read a ledger.

A user-defined part is stored by its module, name and `repr`. It can be shown but not rebuilt: nothing that a ledger
names is imported.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.criterion import FunctionCriterion
from fedmerit.core.criteria.table import Attribute, Computation, find_criterion
from fedmerit.core.objectives import ByClass, ByGroup, Overall
from fedmerit.core.parts import PARTS, load_parts
from fedmerit.core.recipe import Recipe
from fedmerit.core.search.search import Weighting
from fedmerit.core.server.server import Server
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Family, Vector
from fedmerit.errors import DataError

KIND = "is"
"""The key that names a part's class."""
VALUES = (Recipe, Weighting, Server, Attribute, ClientFact, Computation, Overall, ByGroup, ByClass)
"""Values that parts hold, in addition to the registered parts."""


def known_parts() -> Mapping[str, type]:
    """Return the closed table of parts that a text may name, by class."""
    load_parts()
    registered = (kind for table in PARTS.values() for kind in table.values())
    return {kind.__name__: kind for kind in (*VALUES, *registered)}


def part_to_json(part: Any) -> str:
    """A recipe, or any part of one, as JSON text.

    >>> from fedmerit.core.weights.scores import WeightedMean
    >>> part_to_json(WeightedMean((0.5, 0.5)))
    '{"is": "WeightedMean", "weights": [0.5, 0.5]}'
    """
    return json.dumps(_plain(part))


def part_from_json(text: str) -> Any:
    """Build the part that a JSON text describes; a DataError for a user-defined part.

    >>> part_from_json('{"is": "WeightedMean", "weights": [0.5, 0.5]}')
    WeightedMean(weights=(0.5, 0.5))
    """
    try:
        return _part(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"the text does not describe a part of a recipe (got {text!r:.80}; {error}). "
            "Use the text that `part_to_json` returns."
        ) from None


def recipe_from_json(text: str) -> Recipe:
    """Build the recipe that a JSON text describes; a DataError if it does not describe one.

    A stand-in replaces a user-defined criterion: it has the name and no values. Any other user-defined part gets its
    default.
    """
    try:
        values = json.loads(text)
        ours = {key: one for key, one in values.items() if not _is_own(one)}
        recipe = _part(ours | {"criteria": [_stand_in(one) if _is_own(one) else one for one in values["criteria"]]})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"the text does not describe a recipe (got {text!r:.80}; {error})") from None
    if not isinstance(recipe, Recipe):
        raise DataError(f"the text does not describe a recipe (got {text!r:.80})")
    return recipe


def _is_own(value: Any) -> bool:
    return isinstance(value, dict) and ":" in str(value.get(KIND))


def _stand_in(value: dict[str, Any]) -> FunctionCriterion:
    def values(cohort: Cohort, history: History) -> Vector:
        raise DataError(
            f"criterion {value['name']!r} is user-defined and cannot be rebuilt from JSON; pass the recipe itself"
        )

    return FunctionCriterion(str(value["name"]), Family.TARGET, "", values, degree=True)


def part_text(text: str) -> str:
    """Show a part that is stored as JSON the way `repr` does.

    >>> part_text('{"is": "Prioritized"}')
    'Prioritized()'
    """
    try:
        return repr(part_from_json(text))
    except DataError:
        pass
    try:
        return _shown(json.loads(text))
    except (ValueError, KeyError, RecursionError):
        return text  # an old ledger stored plain text


def judged_by(text: str | None) -> str:
    """Measure by which a recipe's search (stored as JSON) judges candidates: `accuracy` or `loss`.

    >>> judged_by('{"is": "Recipe", "search": {"is": "StepSearch"}}')
    'loss'
    """
    try:
        search = json.loads(text or "{}").get("search")
    except (ValueError, AttributeError):
        search = None
    return "loss" if isinstance(search, dict) and search.get(KIND) == "StepSearch" else "accuracy"


def _plain(value: Any) -> Any:
    if isinstance(value, FunctionCriterion) and value == _named(value.name):
        return {KIND: "criterion", "name": value.name}
    if is_dataclass(value) and known_parts().get(type(value).__name__) is type(value):
        return {KIND: type(value).__name__} | {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    made = (
        value.values
        if isinstance(value, FunctionCriterion)
        else value
        if isinstance(value, FunctionType)
        else type(value)
    )
    named = {"name": value.name} if isinstance(getattr(value, "name", None), str) else {}
    return {KIND: f"{made.__module__}:{made.__qualname__}", "repr": repr(value)} | named


def _named(name: str) -> Any:
    try:
        return find_criterion(name)
    except Exception:
        return None


def _shown(value: Any) -> str:
    """Show a part as `repr` does without building it, because some of it is user-defined."""
    if isinstance(value, list):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, dict):
        return repr(value)
    if "repr" in value or value[KIND] == "criterion":
        return str(value.get("repr", value.get("name")))
    return f"{value[KIND]}({', '.join(f'{key}={_shown(one)}' for key, one in value.items() if key != KIND)})"


def _part(value: Any) -> Any:
    if isinstance(value, FunctionCriterion):
        return value
    if isinstance(value, list):
        return tuple(_part(one) for one in value)
    if not isinstance(value, dict):
        return value
    settings = {key: _part(one) for key, one in value.items() if key != KIND}
    if "family" in settings:
        settings["family"] = Family(settings["family"])
    if value[KIND] == "criterion":
        return find_criterion(settings["name"])
    if value[KIND] not in known_parts():
        raise DataError(f"part {value[KIND]!r} is user-defined and cannot be rebuilt from JSON; pass the recipe itself")
    return known_parts()[value[KIND]](**settings)
