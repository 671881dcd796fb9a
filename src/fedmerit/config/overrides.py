"""Overrides: `section.key=value` over the values of a file."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedmerit.config.recipes import RECIPES
from fedmerit.config.scores import SCORES
from fedmerit.config.task import PARTITIONS, task_keys
from fedmerit.errors import ConfigError

CHOICES: Mapping[str, Mapping[str, Collection[str]]] = {
    "recipe.name": {name: section.model_fields for name, section in RECIPES.items()},
    "recipe.score.name": {name: section.model_fields for name, section in SCORES.items()},
    "task.partition": {name: task_keys(name) for name in PARTITIONS},
}
"""Keys that choose which other keys their table takes: for each choice, the keys of the table."""


def override(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply overrides in their order.

    Where one makes another choice (`recipe.name`, `recipe.score.name`, `task.partition`), keys of the file that do not
    go with it are dropped. Keys that are overridden stay, to be refused if they do not belong.
    """
    changes = [_parse(text) for text in overrides]
    for key, value in dict(changes).items():
        if key in CHOICES:
            _choose(values, key, value)
    for (key, value), text in zip(changes, overrides, strict=True):
        *path, last = key.split(".")
        _table(values, path, text)[last] = value


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none (so that names need no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _parse(text: str) -> tuple[str, Any]:
    key, equals, shown = text.partition("=")
    key, value = key.strip(), parse_value(shown.strip())
    if not equals or ("." not in key and not isinstance(value, dict)):
        raise ConfigError(
            "--set takes section.key=value, for example train.lr=0.05, or a whole section, recipe={name='fedavg'}; "
            f"got {text!r}"
        )
    return key, value


def _choose(values: dict[str, Any], key: str, choice: Any) -> None:
    """Drop from the file's table what does not go with a choice that the file did not make."""
    *path, tag = key.split(".")
    table: Any = values
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    takes = CHOICES[key].get(choice) if isinstance(choice, str) else None
    if not isinstance(table, dict) or takes is None or table.get(tag) == choice:
        return
    for name in [name for name in table if name not in takes]:
        del table[name]


def _table(values: dict[str, Any], path: Sequence[str], text: str) -> dict[str, Any]:
    node = values
    for part in path:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {text!r}: {part!r} is a value, not a section")
    return node
