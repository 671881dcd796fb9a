"""User-defined parts: `module:attribute` in a configuration names an object of the user's module.

Such a configuration runs the module's code with the rights of the current user. Commands that read a run folder import
only what `config.trust` allows.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedmerit.config.trust import SHORT, check_trusted, source_hash
from fedmerit.core.criteria.reputation import REPUTATION
from fedmerit.core.facts import ATTRIBUTE, CLIENT_FACT, CONTRIBUTION, VALIDATED
from fedmerit.errors import ConfigError

FAMILIES = (ATTRIBUTE, CLIENT_FACT, VALIDATED, CONTRIBUTION, REPUTATION)
"""Prefixes of built-in names that contain a colon."""
OWN_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


def is_own(name: str) -> bool:
    """Whether a name is that of a user-defined part.

    >>> is_own("parts:freshness"), is_own("attribute:Young"), is_own("DS")
    (True, False, False)
    """
    return ":" in name and not name.startswith(FAMILIES)


def import_own(kind: str, name: str, wanted: str) -> Any:
    """Import `module:attribute`; `wanted` says in error messages what it should be.

    Raises UntrustedPart inside `only_trusted_parts`, unless this machine has run the same source before.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"your own {kind} must be written as module:attribute (got {name!r})")
    check_trusted(kind, name)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{kind} {name!r}: {error}; is its folder on PYTHONPATH? "
            f"If {module}.py is in this folder, start with `PYTHONPATH=. fedmerit ...`"
        ) from None
    except AttributeError as error:
        raise ConfigError(f"{kind} {name!r}: {error}; name {wanted} that the module defines") from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(f"{kind} {name!r}: importing {module} failed: {type(error).__name__}: {error}") from error


def own_part(kind: str, name: str, wanted: str, members: Sequence[str] = ()) -> Any:
    """Import a part: a value, or a class that is called without arguments. It must have these members."""
    found = import_own(kind, name, wanted)
    part = call_own(kind, name, found) if isinstance(found, type) else found
    missing = [member for member in members if not hasattr(part, member)]
    if missing:
        raise ConfigError(f"{kind} {name!r} must be {wanted} (got {type(part).__name__} without {', '.join(missing)})")
    return part


def call_own(kind: str, name: str, function: Callable[[], Any]) -> Any:
    """Call a function or a class of the user; an exception becomes a message of one line."""
    try:
        return function()
    except Exception as error:  # a user's code may raise anything
        raise ConfigError(f"{kind} {name!r}: calling it failed: {type(error).__name__}: {error}") from error


def own_names(value: Any) -> Iterator[str]:
    """The names of user-defined parts anywhere in plain settings or in a recipe as JSON."""
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
    """Name -> hash of its module's source, for each user-defined part of a recipe (as JSON) and of its settings.

    The hash covers the module's file, not the modules that it imports. Code from a notebook has no hash.
    """
    names = dict.fromkeys([*own_names(settings), *own_names(json.loads(recipe))])
    hashes = {name: source_hash(name.partition(":")[0]) for name in sorted(names)}
    return {name: found[:SHORT] for name, found in hashes.items() if found}
