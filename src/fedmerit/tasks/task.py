"""Task: a federation's data and the learner its clients use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmerit.config.schema import Config, TaskConfig, TrainConfig, make_config
from fedmerit.core.learner import Learner
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.tasks import find_task
from fedmerit.tasks.federation import Federation


@dataclass(frozen=True, slots=True)
class Task:
    """Everything a local fleet needs to know."""

    federation: Federation
    learner: Learner


def load_task(data: str, *, seed: int = 0, train: Mapping[str, Any] | None = None, **settings: Any) -> Task:
    """A task by name: load_task("digits", partition="dirichlet", clients=20, train={"lr": 0.2})."""
    values = {"task": {"data": data, **settings}, "train": dict(train or {}), "run": {"seed": seed}}
    return make_task(make_config(values))


def make_task(config: Config) -> Task:
    """The task that a configuration names: its data spread over clients, and its learner."""
    learner = make_learner(config.task, config.train)  # first: a wrong name is told before the data is loaded
    return Task(make_federation(config.task, config.run.seed), learner)


def make_federation(config: TaskConfig, seed: int) -> Federation:
    """The data of a task, spread over clients."""
    return find_task(config.data).load(config, seed)


def make_learner(config: TaskConfig, train: TrainConfig) -> Learner:
    """The learner of a task, with the model that the configuration names."""
    kind = find_task(config.data)
    if config.model != "default" and config.model not in kind.models:
        raise UnknownName(f"model of task {kind.name}", config.model, kind.models)
    model = kind.models[0] if config.model == "default" else config.model
    return (kind.learner or _torch_learner)(model, train)


def _torch_learner(model: str, train: TrainConfig) -> Learner:
    try:
        from fedmerit.learn.models import find_model
        from fedmerit.learn.sgd import TorchLearner
    except ModuleNotFoundError as error:
        raise ConfigError(f"training needs PyTorch ({error.name} is missing): pip install 'fedmerit[torch]'") from None
    return TorchLearner(find_model(model), train)
