"""Parts of a user's own: `module:attribute` in a configuration names what a module of theirs defines.

Such a configuration runs the module's code, with the rights of whoever runs it. Nothing that a run left behind is
imported: reports and `explain` read names, hashes and numbers.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedmerit.core.criteria.reputation import REPUTATION
from fedmerit.core.facts import ATTRIBUTE, CLIENT_FACT, CONTRIBUTION, VALIDATED
from fedmerit.errors import ConfigError

FAMILIES = (ATTRIBUTE, CLIENT_FACT, VALIDATED, CONTRIBUTION, REPUTATION)
"""Names with a colon that are ours."""
OWN_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


def is_own(name: str) -> bool:
    """Whether a name is that of a part of a user's own.

    >>> is_own("parts:freshness"), is_own("attribute:Young"), is_own("DS")
    (True, False, False)
    """
    return ":" in name and not name.startswith(FAMILIES)


def import_own(kind: str, name: str, wanted: str) -> Any:
    """What `module:attribute` names in a user's module; `wanted` says in an error what it should be."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"a {kind} of your own is written module:attribute; got {name!r}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{kind} {name!r}: {error}; is its folder on PYTHONPATH?") from None
    except AttributeError as error:
        raise ConfigError(f"{kind} {name!r}: {error}; name {wanted} that the module defines") from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(f"{kind} {name!r}: importing {module} failed: {type(error).__name__}: {error}") from error


def own_part(kind: str, name: str, wanted: str, members: Sequence[str] = ()) -> Any:
    """A part by `module:attribute`: a value, or a class that is called without arguments; it has these members."""
    found = import_own(kind, name, wanted)
    part = call_own(kind, name, found) if isinstance(found, type) else found
    missing = [member for member in members if not hasattr(part, member)]
    if missing:
        raise ConfigError(f"{kind} {name!r} must be {wanted}; got {type(part).__name__} without {', '.join(missing)}")
    return part


def call_own(kind: str, name: str, function: Callable[[], Any]) -> Any:
    """What a function or a class of the user's makes; what it raises becomes one line."""
    try:
        return function()
    except Exception as error:  # a user's code may raise anything
        raise ConfigError(f"{kind} {name!r}: calling it failed: {type(error).__name__}: {error}") from error


def own_names(value: Any) -> Iterator[str]:
    """The names of users' own parts in plain settings, or in a recipe kept as JSON, wherever they stand."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from own_names(one)
    elif isinstance(value, str):
        name = value.removeprefix(REPUTATION)
        if OWN_NAME.fullmatch(name) and is_own(name):
            yield name


def own_sources(recipe: str, settings: Sequence[Any]) -> dict[str, str]:
    """Name -> hash of its module's source, for each own part of a recipe (as JSON) and of the settings that named it.

    The hash is over the module's file, not over what it imports in turn. What was typed in a notebook has none.
    """
    names = dict.fromkeys([*own_names(settings), *own_names(json.loads(recipe))])
    hashes = {name: _source_hash(name.partition(":")[0]) for name in sorted(names)}
    return {name: found for name, found in hashes.items() if found}


def _source_hash(module: str) -> str | None:
    """The hash of a module's file; None where it has none, and for modules of this library."""
    if module.split(".")[0] == "fedmerit":
        return None
    try:
        spec = None if module in sys.modules else find_spec(module)
        path = spec.origin if spec else getattr(sys.modules.get(module), "__file__", None)
        return sha256(Path(path).read_bytes()).hexdigest()[:12] if path else None
    except (OSError, ImportError, ValueError):
        return None
