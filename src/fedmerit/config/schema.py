"""The configuration of a run: TOML in, frozen and validated values out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import field_validator

from fedmerit.config.mistakes import validate
from fedmerit.config.overrides import override, parse_value
from fedmerit.config.recipes import (
    AnyRecipe,
    FedAvgConfig,
    GroupsConfig,
    PrioritizedConfig,
    RecipeConfig,
    RewardConfig,
    SearchConfig,
    ServerConfig,
)
from fedmerit.config.run import RunConfig, ScheduleConfig, TrainConfig
from fedmerit.config.scores import ScoreConfig
from fedmerit.config.sections import Section
from fedmerit.config.task import TaskConfig, check_options
from fedmerit.errors import ConfigError

__all__ = [
    "Config",
    "GroupsConfig",
    "PrioritizedConfig",
    "RecipeConfig",
    "RewardConfig",
    "RunConfig",
    "ScheduleConfig",
    "ScoreConfig",
    "SearchConfig",
    "Section",
    "ServerConfig",
    "TaskConfig",
    "TrainConfig",
    "check_options",
    "dump_config",
    "load_config",
    "make_config",
    "parse_value",
    "read_toml",
    "validate",
]


class Config(Section):
    """One run, completely: [task], [train], [recipe] and [run]; docs/configuration.md has every key.

    >>> Config().recipe.name, Config().run.rounds
    ('fedavg', 20)
    """

    task: TaskConfig = TaskConfig()
    train: TrainConfig = TrainConfig()
    recipe: AnyRecipe = FedAvgConfig()
    run: RunConfig = RunConfig()

    @field_validator("task", "train", "recipe", "run", mode="before")
    @classmethod
    def _is_table(cls, value: Any) -> Any:
        if isinstance(value, Section | Mapping):
            return value
        raise ValueError("must be a table such as [run]")


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file, or begin with the defaults, and apply `key=value` overrides such as `train.lr=0.05`.

    An override that makes another choice (`recipe.name=fedavg`) drops the keys of the file that do not go with it.

    >>> load_config(None, ["recipe.name=prioritized", "recipe.priority=LD > DS"]).recipe.priority
    ('LD', 'DS')
    """
    values = {} if path is None else read_toml(Path(path))
    override(values, overrides)
    return make_config(values)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, not yet checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}; start from one in examples/") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def make_config(values: Mapping[str, Any]) -> Config:
    """Validate nested settings; every mistake is named in one ConfigError."""
    return validate(Config, values)


def dump_config(config: Config) -> str:
    """The whole configuration as TOML, defaults included."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))
