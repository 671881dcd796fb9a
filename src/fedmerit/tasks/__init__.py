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
from fedmerit.tasks.kind import TaskKind, import_kind
from fedmerit.tasks.mnist import FASHION, MNIST, TWO

__all__ = ["TASKS", "TaskKind", "find_task"]

TASKS: Mapping[str, TaskKind] = MappingProxyType(
    {kind.name: kind for kind in (DIGITS, MNIST, TWO, FASHION, CELEBA, FEMNIST, ADULT, COMPAS)}
)


def find_task(name: str) -> TaskKind:
    """The task of that name, or the user's own that `module:attribute` names."""
    if name in TASKS:
        return TASKS[name]
    if ":" in name:
        return import_kind(name)
    raise UnknownName("task", name, [*TASKS, "module:attribute"])
