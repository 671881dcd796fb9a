"""Tasks by name: the closed table, and how a name becomes a federation, a learner, a task and its halves.

A task's module is imported on first use, so that loading one data set does not import the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedmerit.config.own import import_own
from fedmerit.config.schema import Config, TaskConfig, TrainConfig, make_config
from fedmerit.config.task import NODES, TABLE
from fedmerit.config.trust import only_trusted_parts
from fedmerit.core.attacks.attack import NOBODY, Attackers, Coalition
from fedmerit.core.host import ServerSetup
from fedmerit.core.learner import ControlledLearner, Learner, ScheduledLearner
from fedmerit.core.targets import CLASSES, Target
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.tasks.attackers import find_attackers, poison
from fedmerit.tasks.client_facts import with_facts
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.federation import ClientData, Federation

MADE = ("iid", "shards", "dirichlet", "label-groups", "label-draws")
"""Partitions of any labelled data; `natural` also needs ids."""

SENSITIVE = ("attribute", "attribute-label")
"""Partitions of data with attributes."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task by name: its data, the partitions it supports, and its models.

    name                      value of `task.data`
    about                     one line for `fedmerit list tasks`
    load                      builds the whole federation from the [task] settings and the run's seed
    models                    names of models; the first is the default
    partitions                supported partitions; the first is the default
    clients                   default number of clients; None: the number of natural owners in the data
    learner                   builds the learner of a model; by default the models of `fedmerit.learn.models`
    test                      default test split
    sized                     the models' size depends on the data: on the columns of a table

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
    sized: bool = False


TASKS: Mapping[str, str] = {
    "digits": "fedmerit.tasks.datasets.digits:DIGITS",
    "mnist": "fedmerit.tasks.datasets.mnist:MNIST",
    "mnist-two-groups": "fedmerit.tasks.datasets.mnist:TWO_GROUPS",
    "fashion-mnist": "fedmerit.tasks.datasets.mnist:FASHION",
    "celeba": "fedmerit.tasks.datasets.celeba:CELEBA",
    "femnist": "fedmerit.tasks.datasets.femnist:FEMNIST",
    "adult": "fedmerit.tasks.datasets.people:ADULT",
    "compas": "fedmerit.tasks.datasets.people:COMPAS",
    "german-credit": "fedmerit.tasks.datasets.people:GERMAN_CREDIT",
    "heart-disease": "fedmerit.tasks.datasets.hospitals:HEART",
    "shakespeare": "fedmerit.tasks.datasets.shakespeare:SHAKESPEARE",
    "medpar": "fedmerit.tasks.datasets.hospitals:MEDPAR",
    "movielens": "fedmerit.tasks.datasets.movielens:MOVIELENS",
}
"""Where each task's TaskSpec is, as module:attribute."""

TABLE_TASK = "fedmerit.tasks.table:TABLE"
"""TaskSpec of any table, for `task.data = "table:FILE"`."""
NODES_TASK = "fedmerit.tasks.nodes:NODES"
"""TaskSpec of rows that stay on their nodes."""


@dataclass(frozen=True, slots=True)
class ClientHalf:
    """One client's part of a task, without rows of other clients; with the coalition if it attacks."""

    data: ClientData
    learner: Learner
    coalition: Coalition | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A federation's data and the learner of its clients: everything that a local fleet needs.

    federation   the clients and their rows
    learner      trains and predicts
    attackers    clients that attack, for experiments

    >>> load_task("digits", clients=4).server().limits["labels"]
    10.0
    """

    federation: Federation
    learner: Learner
    attackers: Attackers = NOBODY

    @property
    def is_pooled(self) -> bool:
        """Whether one client holds all training rows."""
        return int(np.count_nonzero(self.federation.train.sizes)) == 1

    def pooled(self) -> Task:
        """Return the task with all training rows at client 0, for the recipe `pooled`; test rows stay."""
        if self.attackers.members:
            raise ConfigError("pooled: all rows are in one place, where no client can attack; remove task.attack")
        data, rows = self.federation, len(self.federation.train.y)
        train = replace(data.train, offsets=np.append(0, np.full(len(data.names), rows)))
        note = f"pooled: all {rows:,} training rows are in one place, recorded as {data.names[0]}"
        return replace(self, federation=replace(data, train=train, report=(*data.report, note)))

    def client(self, client: ClientId) -> ClientHalf:
        """Return one client's half, as views of its rows."""
        return ClientHalf(self.federation.client(client), self.learner, self.attackers.of(client))

    def server(self) -> ServerSetup:
        """Return the server's half, without rows of a client."""
        data = self.federation
        limits = {"samples": float(len(data.train.y)), "labels": float(data.classes)}
        return ServerSetup(data.names, self.learner, data.server, limits, notes=data.report)


def find_task(name: str) -> TaskSpec:
    """Find a task by name: a built-in one, a table, or a user-defined one as `module:attribute`."""
    place = TABLE_TASK if name.startswith(TABLE) else NODES_TASK if name == NODES else TASKS.get(name, name)
    if ":" not in place:
        raise UnknownName("task", name, [*TASKS, "table:FILE", NODES, "module:attribute"])
    with nullcontext() if place == name else only_trusted_parts(trust=True):  # ours
        spec = import_own("task", place, "a TaskSpec")
    if not isinstance(spec, TaskSpec):
        raise ConfigError(f"task {name!r} must be a fedmerit.TaskSpec (got {type(spec).__name__})")
    return spec


def load_task(data: str, *, seed: int = 0, train: Mapping[str, Any] | None = None, **settings: Any) -> Task:
    """Load a task by name: its data, split over clients, and its learner.

    data        a name that `fedmerit list tasks` shows, or `module:attribute` for your own `TaskSpec`
    seed        of the partition: the same seed gives the same clients
    train       settings of [train], for example {"lr": 0.2, "epochs": 1}
    settings    settings of [task], for example partition, clients and model (docs/configuration.md)

    >>> task = load_task("digits", partition="dirichlet", alpha=0.3, clients=4)
    >>> len(task.federation.names)
    4
    """
    values = {"task": {"data": data, **settings}, "train": dict(train or {}), "run": {"seed": seed}}
    return make_task(make_config(values))


def make_task(config: Config, load: Callable[[TaskConfig, int], Federation] | None = None) -> Task:
    """Build the task of a configuration: its data distributed over clients, its learner, and its attackers.

    `load` replaces `make_federation`, for runs that share data.
    """
    _model_of(config.task)  # so that a wrong name fails before the data is loaded
    federation = (load or make_federation)(config.task, config.run.seed)
    federation = with_facts(federation, config.facts, by_number=not config.task.without)
    learner = make_learner(config.task, config.train, federation.encoder)
    attackers = find_attackers(config.task, len(federation.names), config.run.seed)
    task = Task(federation, learner, attackers)
    return task.pooled() if config.recipe.name == "pooled" else task


def make_server(config: Config) -> ServerSetup:
    """Build the server's half of the task; the clients' rows are freed at once, and those of nodes are never read."""
    if config.task.data == NODES:
        from fedmerit.tasks.nodes import nodes_server

        return nodes_server(config.task, make_learner(config.task, config.train))
    return make_task(config).server()


def make_client(config: Config, client: ClientId) -> ClientHalf:
    """Build one client's half of the task; other rows are freed at once."""
    if config.task.data == NODES:
        raise ConfigError("this node has no data; start it with --node-config \"data='FILE' name='NAME'\"")
    half = make_task(config).client(client)
    return replace(half, data=deepcopy(half.data))


def make_node(config: Config, source: str, name: str) -> ClientHalf:
    """Build the half of the node with this name, whose rows are in `source`; reject a run with other data."""
    from fedmerit.tasks.nodes import layout_of, node_data  # only nodes need its readers

    if config.task.data != NODES:
        raise ConfigError(
            f"this node was started with `data` and joins only runs with task.data = {NODES!r} "
            f"(got {config.task.data!r}); change task.data, or start the node without `data`"
        )
    names = layout_of(config.task).names
    if name not in names:
        raise UnknownName("name of a node", name, names)
    data = node_data(config.task, config.run.seed, names.index(name), source)
    return ClientHalf(data, make_learner(config.task, config.train))


def make_federation(config: TaskConfig, seed: int) -> Federation:
    """Load the data of a task, distributed over clients and poisoned by row attackers."""
    data = find_task(config.data).load(config, seed)
    left = [name for name in config.without if name in data.names]  # of a user's task that does not know the key
    data = data.without(left) if left else data
    return poison(data, find_attackers(config, len(data.names), seed), seed)


def make_learner(config: TaskConfig, train: TrainConfig, encoder: Encoder | None = None) -> Learner:
    """Build the learner of a task, with the model that the configuration names.

    `encoder` is that of a table: it knows the inputs and what is predicted.
    """
    spec, model = find_task(config.data), _model_of(config)
    if spec.learner is not None:
        learner = spec.learner(model, train)
    else:
        shape = encoder.shape if spec.sized and encoder else None
        if config.data == NODES:
            from fedmerit.tasks.nodes import shape_of

            shape = shape_of(config)
        learner = _torch_learner(model, train, shape, encoder.target(config) if encoder else CLASSES)
    if train.schedule != "constant" and not isinstance(learner, ScheduledLearner):
        raise ConfigError(f"train.schedule needs a learner with a method `at_rate`; that of task {spec.name} has none")
    if train.algorithm != "sgd" and not (isinstance(learner, ControlledLearner) and learner.control):
        raise ConfigError(
            f"train.algorithm = {train.algorithm!r} needs a learner with a `control`; that of task {spec.name} has none"
        )
    return learner


def _model_of(config: TaskConfig) -> str:
    """The model that [task] names, or the first of the task."""
    spec = find_task(config.data)
    if config.model != "default" and config.model not in spec.models and not (spec.sized and ":" in config.model):
        valid = [*spec.models, *(["module:function"] if spec.sized else [])]
        raise UnknownName(f"model of task {spec.name}", config.model, valid)
    return spec.models[0] if config.model == "default" else config.model


def _torch_learner(model: str, train: TrainConfig, shape: tuple[int, int] | None, target: Target) -> Learner:
    try:
        from fedmerit.learn.models import SIZED, find_model
        from fedmerit.learn.sgd import TorchLearner
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"training needs PyTorch ({error.name} is missing); install the extra `torch` (docs/install.md)"
        ) from None
    if shape is None:
        return TorchLearner(find_model(model), train, target=target)
    own = import_own("model", model, "a function of inputs and classes") if ":" in model else None
    return TorchLearner(partial(own or SIZED[model], *shape), train, target=target)
