"""What a task is: where its data comes from, how it may be spread, which models learn it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.core.learner import Learner
from fedmerit.errors import ConfigError
from fedmerit.tasks.federation import Federation

MADE = ("iid", "shards", "dirichlet", "label-groups", "label-draws")
"""The partitions that can be made of any labelled data; `natural` needs ids besides."""


SENSITIVE = ("attribute", "attribute-label")
"""Those for data that has attributes."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task by name.

    `load` takes the [task] settings and the run's seed. The first of `models` is the default, and so is the first of
    `partitions`; `test` says how clients are tested by default.
    `clients` is the default number for made partitions; None means as many as there are people in the data.
    `learner` makes the learner of a model; without it the models are those of `fedmerit.learn.models`.
    `sampled` says that `task.sample` may draw some of its people.
    """

    name: str
    about: str
    load: Callable[[TaskConfig, int], Federation]
    models: tuple[str, ...]
    partitions: tuple[str, ...] = MADE
    clients: int | None = None
    learner: Callable[[str, TrainConfig], Learner] | None = None
    sampled: bool = False
    test: Literal["slices", "matched"] = "slices"

    def settled(self, config: TaskConfig) -> TaskConfig:
        """The settings with this task's own in place of `default`."""
        partition = self.partitions[0] if config.partition == "default" else config.partition
        test = self.test if config.test == "default" else config.test
        return config.model_copy(update={"partition": partition, "test": test})


def import_spec(name: str) -> TaskSpec:
    """The TaskSpec that a user's `module:attribute` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"a task of your own is written module:attribute; got {name!r}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"task {name!r}: {error}; is its folder on PYTHONPATH?") from None
    except AttributeError as error:
        raise ConfigError(f"task {name!r}: {error}; name a TaskSpec that the module defines") from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(f"task {name!r}: importing {module} failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, TaskSpec):
        raise ConfigError(f"task {name!r} must be a fedmerit.tasks.TaskSpec; got {type(found).__name__}")
    return found
