"""Devices of a run: the learner on what `run.device` names, how many workers that makes, what the ledger calls it."""

from __future__ import annotations

from dataclasses import replace

from fedmerit.config.run import RunConfig
from fedmerit.core.learner import DeviceLearner, Learner
from fedmerit.core.system import cores
from fedmerit.errors import ConfigError
from fedmerit.tasks.registry import Task


def on_devices(task: Task, settings: RunConfig) -> Task:
    """The task with a learner that trains where `run.device` says; who does not ask for a device gets it as it is."""
    if settings.device == "cpu":
        return task
    if not isinstance(task.learner, DeviceLearner):
        raise ConfigError(
            f"run.device = {settings.device!r} needs a learner with the methods of `DeviceLearner`, such as "
            "`TorchLearner`; that of this task has none: leave run.device out"
        )
    return replace(task, learner=task.learner.on(settings.device))


def device_of(learner: Learner) -> str:
    """The device that the bits depend on, as ledgers name it."""
    return learner.described if isinstance(learner, DeviceLearner) else "cpu"


def count_workers(learner: Learner, settings: RunConfig) -> int:
    """As `run.workers` says; else one per core, and one where an accelerator trains."""
    return settings.workers or (cores() if device_of(learner) == "cpu" else 1)
