"""TaskSpec: a task by name; where its data comes from, how it may be spread, which models learn it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedmerit.config.own import import_own
from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.core.learner import Learner
from fedmerit.core.targets import Target
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError
from fedmerit.tasks.federation import ClientData, Federation, ServerData

MADE = ("iid", "shards", "dirichlet", "label-groups", "label-draws")
"""The partitions that can be made of any labelled data; `natural` needs ids besides."""

SENSITIVE = ("attribute", "attribute-label")
"""Those for data that has attributes."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task by name: where its data comes from, how it may be spread over clients, which models learn it.

    name: what `task.data` says.
    about: one line for `fedmerit tasks`.
    load: the whole federation, from the [task] settings and the run's seed.
    models: names of models; the first is the default.
    partitions: how the data may be spread; the first is the default.
    clients: the default number for made partitions; None means as many as there are people in the data.
    learner: makes the learner of a model; without it the models are those of `fedmerit.learn.models`.
    test: how clients are tested by default.
    load_client, load_server: one client's half and the server's half of what `load` gives, for data that lies with
        the clients. Without them both load the whole federation and keep their half of it.
    shape: inputs and classes of the data, for models whose size depends on them.
    target: what these models predict; without it, classes.

    >>> from fedmerit.tasks.registry import find_task
    >>> find_task("digits").partitions[0], find_task("digits").models[0]
    ('iid', 'digits-mlp')
    """

    name: str
    about: str
    load: Callable[[TaskConfig, int], Federation]
    models: tuple[str, ...]
    partitions: tuple[str, ...] = MADE
    clients: int | None = None
    learner: Callable[[str, TrainConfig], Learner] | None = None
    test: Literal["slices", "matched"] = "slices"
    load_client: Callable[[TaskConfig, int, ClientId], ClientData] | None = None
    load_server: Callable[[TaskConfig, int], ServerData] | None = None
    shape: Callable[[TaskConfig], tuple[int, int]] | None = None
    target: Callable[[TaskConfig], Target] | None = None


def import_spec(name: str) -> TaskSpec:
    """The TaskSpec that `module:attribute` names."""
    spec = import_own("task", name, "a TaskSpec")
    if not isinstance(spec, TaskSpec):
        raise ConfigError(f"task {name!r} must be a fedmerit.TaskSpec; got {type(spec).__name__}")
    return spec
