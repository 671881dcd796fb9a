"""The configuration of a run: TOML in, frozen and validated values out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedmerit.config.privacy import PrivacyConfig
from fedmerit.config.reading import read_text
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.config.run import DelaysConfig, RunConfig, ScheduleConfig, StopConfig, WaitConfig
from fedmerit.config.sections import Section, validate
from fedmerit.config.task import PARTITIONS, FactsConfig, TaskConfig, check_options, task_keys
from fedmerit.config.train import ALGORITHMS, TrainConfig, train_keys
from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError

__all__ = [
    "Config",
    "DelaysConfig",
    "FactsConfig",
    "PrivacyConfig",
    "RecipeConfig",
    "RunConfig",
    "ScheduleConfig",
    "Section",
    "StopConfig",
    "TaskConfig",
    "TrainConfig",
    "WaitConfig",
    "check_options",
    "dump_config",
    "flatten",
    "load_config",
    "make_config",
    "make_recipe",
    "parse_value",
    "read_toml",
    "set_values",
    "validate",
]

DEFAULT_RECIPE = RecipeConfig()


class Config(Section):
    """One run, completely: [task], [train], [recipe], [run], [privacy], [facts]; docs/configuration.md has every key.

    >>> Config().recipe.name, Config().run.rounds
    ('fedavg', 20)
    """

    task: TaskConfig = TaskConfig()
    train: TrainConfig = TrainConfig()
    recipe: RecipeConfig = DEFAULT_RECIPE
    run: RunConfig = RunConfig()
    privacy: PrivacyConfig | None = None
    facts: FactsConfig | None = None


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, or begin with the defaults, and apply `key=value` overrides such as `train.lr=0.05`.

    An override that makes another choice (`recipe.name=fedavg`) drops the keys of the file that do not go with it.

    >>> load_config(None, ["recipe.name=prioritized", "recipe.criteria=LD > DS"]).recipe.values
    {'name': 'prioritized', 'criteria': ['LD', 'DS']}
    """
    values = {} if path is None else read_toml(Path(path))
    override(values, overrides)
    return make_config(values)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, not yet checked."""
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}; start from one in examples/") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {printable(str(error))}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def make_config(values: Mapping[str, Any]) -> Config:
    """Validate nested settings; every mistake is named in one ConfigError."""
    return validate(Config, values)


def dump_config(config: Config) -> str:
    """The whole configuration as TOML, defaults included; of the recipe what was given."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


CHOICES: Mapping[str, Mapping[str, Collection[str]]] = {
    "train.algorithm": {name: train_keys(name) for name in ALGORITHMS},
    "task.partition": {name: task_keys(name) for name in PARTITIONS},
}
"""Keys that choose which other keys their table takes: for each choice, the keys of the table.

The `name` of a recipe and of its parts chooses, too: another name drops the whole table."""


def override(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply overrides in their order.

    Where one makes another choice (`recipe.name`, `train.algorithm`, `task.partition`), keys of the file that do not
    go with it are dropped. Keys that are overridden stay, to be refused if they do not belong.
    """
    set_values(values, [_parse(text) for text in overrides])


def set_values(values: dict[str, Any], changes: Sequence[tuple[str, Any]]) -> None:
    """Set keys such as `train.lr` in nested settings, in their order, with what `override` says of choices."""
    for key, value in dict(changes).items():
        _choose(values, key, value)
    for key, value in changes:
        *path, last = key.split(".")
        _table(values, path, key)[last] = value


def flatten(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by their full keys.

    >>> flatten({"train": {"lr": 0.1, "batch": 8}})
    {'train.lr': 0.1, 'train.batch': 8}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return flat


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none (so that names need no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _parse(text: str) -> tuple[str, Any]:
    key, equals, shown = text.partition("=")
    key, value = key.strip(), parse_value(shown.strip())
    whole = isinstance(value, dict) or key == "recipe"
    if not equals or ("." not in key and not whole):
        raise ConfigError(
            "--set takes section.key=value, for example train.lr=0.05, or a whole section, recipe={name='fedavg'}; "
            f"got {text!r}"
        )
    return key, value


def _choose(values: dict[str, Any], key: str, choice: Any) -> None:
    """Drop from the file what does not go with a choice that the file did not make."""
    *path, tag = key.split(".")
    home, table = None, values  # the table that the key is in, and the one around it
    for part in path:
        home, table = table, table.get(part) if isinstance(table, dict) else None  # type: ignore[assignment]
    if re.fullmatch(r"recipe(\.\w+)*\.name", key) and home is not None and table is not None:
        default = DEFAULT_RECIPE.name if len(path) == 1 else None
        if (table.get("name", default) if isinstance(table, dict) else table) != choice:
            del home[path[-1]]
    elif key in CHOICES and isinstance(table, dict) and isinstance(choice, str) and table.get(tag) != choice:
        for name in [name for name in table if name not in CHOICES[key].get(choice, table)]:
            del table[name]


def _table(values: dict[str, Any], path: Sequence[str], key: str) -> dict[str, Any]:
    node = values
    for part in path:
        below = node.setdefault(part, {})
        if isinstance(below, str) and path[0] == "recipe":  # a bare name
            below = node[part] = {"name": below}
        if not isinstance(below, dict):
            raise ConfigError(f"cannot set {key}: {part!r} is a value, not a section")
        node = below
    return node
