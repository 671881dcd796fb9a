"""Task: a federation's data and the learner its clients use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmerit.config import Config, TaskConfig, TrainConfig, make_config
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.learn.base import Learner
from fedmerit.tasks import find_task
from fedmerit.tasks.federation import Federation


@dataclass(frozen=True, slots=True)
class Task:
    """Everything a local fleet needs to know."""

    federation: Federation
    learner: Learner


def load_task(data: str, *, seed: int = 0, train: Mapping[str, Any] | None = None, **settings: Any) -> Task:
    """A task by name: load_task("digits", partition="dirichlet", clients=20, train={"lr": 0.2})."""
    config: Config = make_config({"task": {"data": data, **settings}, "train": dict(train or {})})
    return make_task(config.task, config.train, seed)


def make_task(config: TaskConfig, train: TrainConfig, seed: int) -> Task:
    """The task that a configuration names: its data spread over clients, and its learner."""
    kind = find_task(config.data)
    if config.model != "default" and config.model not in kind.models:
        raise UnknownName(f"model of task {kind.name}", config.model, kind.models)
    model = kind.models[0] if config.model == "default" else config.model
    return Task(kind.load(config, seed), (kind.learner or _torch_learner)(model, train))


def _torch_learner(model: str, train: TrainConfig) -> Learner:
    try:
        from fedmerit.learn.models import find_model
        from fedmerit.learn.sgd import TorchLearner
    except ModuleNotFoundError as error:
        raise ConfigError(f"training needs PyTorch ({error.name} is missing): pip install 'fedmerit[torch]'") from None
    return TorchLearner(find_model(model), train)
