"""Tasks by name: where each one's data comes from and which models learn it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedmerit.errors import UnknownName
from fedmerit.tasks.adult import ADULT
from fedmerit.tasks.celeba import CELEBA
from fedmerit.tasks.compas import COMPAS
from fedmerit.tasks.digits import DIGITS
from fedmerit.tasks.femnist import FEMNIST
from fedmerit.tasks.mnist import FASHION, MNIST, TWO
from fedmerit.tasks.task_spec import TaskSpec, import_spec

__all__ = ["TASKS", "TaskSpec", "find_task"]

TASKS: Mapping[str, TaskSpec] = MappingProxyType(
    {kind.name: kind for kind in (DIGITS, MNIST, TWO, FASHION, CELEBA, FEMNIST, ADULT, COMPAS)}
)


def find_task(name: str) -> TaskSpec:
    """The task of that name, or the user's own that `module:attribute` names."""
    if name in TASKS:
        return TASKS[name]
    if ":" in name:
        return import_spec(name)
    raise UnknownName("task", name, [*TASKS, "module:attribute"])
