"""The configuration of a run: read from TOML, validated, frozen."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedmerit.config.privacy import PrivacyConfig
from fedmerit.config.reading import read_text
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.config.run import RunConfig, ScheduleConfig, WaitConfig
from fedmerit.config.sections import Section, parse_value, validate
from fedmerit.config.task import PARTITIONS, FactsConfig, TaskConfig, check_options, task_keys
from fedmerit.config.train import TrainConfig
from fedmerit.core.showing import printable
from fedmerit.errors import ConfigError

__all__ = [
    "Config",
    "FactsConfig",
    "PrivacyConfig",
    "RecipeConfig",
    "RunConfig",
    "ScheduleConfig",
    "Section",
    "TaskConfig",
    "TrainConfig",
    "WaitConfig",
    "check_options",
    "dump_config",
    "flatten",
    "load_config",
    "make_config",
    "make_recipe",
    "read_toml",
    "set_values",
    "validate",
]

DEFAULT_RECIPE = RecipeConfig()


class Config(Section):
    """The complete configuration of a run: [task], [train], [recipe], [run], [privacy], [facts].

    docs/configuration.md has every key.

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
    """Read a TOML file (None: the defaults) and apply overrides such as `train.lr=0.05`.

    An override that chooses another part (`recipe.name=fedavg`) drops the keys of the file that the part does not use.

    >>> values = ["recipe.name=prioritized", "recipe.criteria=LD > DS"]
    >>> load_config(None, values).recipe.values
    {'name': 'prioritized', 'criteria': ['LD', 'DS']}
    """
    values = {} if path is None else read_toml(Path(path))
    if "row" in values:
        raise ConfigError(
            f"{path} is a study, not a configuration (it has [[row]]): use `fedmerit compare {path} --out DIR`"
        )
    override(values, overrides)
    return make_config(values)


def read_toml(path: Path) -> dict[str, Any]:
    """Read the values of a TOML file, unchecked."""
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}; write one with `fedmerit init`") from None
    except (ValueError, RecursionError) as error:
        is_table = path.suffix in (".csv", ".tsv", ".xlsx", ".parquet")
        hint = f"; a table needs `fedmerit weigh {path}` or `fedmerit init --data {path}`" if is_table else ""
        raise ConfigError(f"{path} is not valid TOML: {printable(str(error))}{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def make_config(values: Mapping[str, Any]) -> Config:
    """Validate nested settings; one ConfigError names every mistake."""
    return validate(Config, values)


def dump_config(config: Config) -> str:
    """The configuration as TOML, with defaults; of the recipe only the given keys."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def override(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply overrides in order.

    Where one chooses another `recipe.name` or `task.partition`, keys of the file that do not belong to the choice are
    dropped. Overridden keys stay, and are refused if they do not belong.
    """
    set_values(values, [_parse(text) for text in overrides])


def set_values(values: dict[str, Any], changes: Sequence[tuple[str, Any]]) -> None:
    """Set keys such as `train.lr` in nested settings, in order, by the rules of `override`."""
    for key, value in dict(changes).items():
        _choose(values, key, value)
    for key, value in changes:
        *path, last = key.split(".")
        _table(values, path, key)[last] = value


def flatten(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested settings to full keys.

    >>> flatten({"train": {"lr": 0.1, "batch": 8}})
    {'train.lr': 0.1, 'train.batch': 8}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return flat


def _parse(text: str) -> tuple[str, Any]:
    key, equals, shown = text.partition("=")
    key, value = key.strip(), parse_value(shown.strip())
    whole = isinstance(value, dict) or key == "recipe"
    if not equals or ("." not in key and not whole):
        raise ConfigError(
            f"--set needs section.key=value (got {text!r}); for example train.lr=0.05, or a whole section, "
            "recipe={name='fedavg'}"
        )
    return key, value


def _choose(values: dict[str, Any], key: str, choice: Any) -> None:
    """Drop the keys of the file that do not belong to a newly chosen value."""
    *path, tag = key.split(".")
    home, table = None, values  # the table that the key is in, and the one around it
    for part in path:
        home, table = table, table.get(part) if isinstance(table, dict) else None  # type: ignore[assignment]
    if re.fullmatch(r"recipe(\.\w+)*\.name", key) and home is not None and table is not None:
        default = DEFAULT_RECIPE.name if len(path) == 1 else None
        if (table.get("name", default) if isinstance(table, dict) else table) != choice:
            del home[path[-1]]
    elif key == "task.partition" and isinstance(table, dict) and choice in PARTITIONS and table.get(tag) != choice:
        for name in table.keys() - {*task_keys(choice)}:
            del table[name]


def _table(values: dict[str, Any], path: Sequence[str], key: str) -> dict[str, Any]:
    node = values
    for part in path:
        below = node.setdefault(part, {})
        if isinstance(below, str) and path[0] == "recipe":  # a bare name
            below = node[part] = {"name": below}
        if not isinstance(below, dict):
            raise ConfigError(f"cannot set {key}: {part!r} is a value, not a section; set {part} itself")
        node = below
    return node
