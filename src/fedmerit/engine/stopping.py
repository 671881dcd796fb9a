"""Early stopping: when the accuracy on validation rows says that more rounds do not pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedmerit.config.run import StopConfig
from fedmerit.core.parts import declared
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.errors import ConfigError
from fedmerit.tasks.registry import Task

Stop: TypeAlias = Callable[[Sequence[float]], bool]
"""The accuracies on validation rows after each round so far -> whether to stop."""


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Stop once the best accuracy on validation rows has not risen by more than `least` for `patience` rounds.

    >>> stop = EarlyStopping(patience=2)
    >>> stop([0.5, 0.7, 0.7]), stop([0.5, 0.7, 0.7, 0.6])
    (False, True)
    """

    patience: int = 5
    least: float = 0.0

    def __post_init__(self) -> None:
        if self.patience < 1 or not 0 <= self.least < 1:
            raise ConfigError(
                f"early stopping has a patience of 1 round or more and a least rise in 0..1; got {self.patience} "
                f"and {self.least:g}"
            )

    def __call__(self, accuracies: Sequence[float]) -> bool:
        """Whether the last rounds brought nothing over those before them."""
        if len(accuracies) <= self.patience:
            return False
        return max(accuracies[-self.patience :]) <= max(accuracies[: -self.patience]) + self.least


def make_stop(section: StopConfig | None) -> Stop | None:
    """What [run.stop] asks for."""
    return None if section is None else EarlyStopping(section.patience, section.least)


def check_stop(stop: Stop | None, task: Task, recipe: Recipe, evaluate_every: int) -> None:
    """Early stopping needs validation rows, one model, and a test after every round."""
    if stop is None:
        return
    if not len(task.federation.validation.y):
        raise ConfigError("stopping early goes by validation rows, and no client has any; set validation=0.1")
    if "shared test" not in declared(recipe.models, "gives"):
        raise ConfigError(
            "stopping early goes by one model, and in this recipe each client has its own, or chooses among several"
        )
    if privacy_of(recipe) is not None:
        raise ConfigError("stopping early asks clients' rows without noise, which [privacy] does not cover")
    if evaluate_every != 1:
        raise ConfigError("a run that may stop after any round tests every one; leave evaluate_every at 1")
