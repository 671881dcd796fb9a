"""Attackers of a task: who they are, what they did to their rows, and how well that worked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.attack import make_coalitions
from fedmerit.config.task import TaskConfig
from fedmerit.core.attacks import Attackers, Backdoor, LabelFlip, RowAttack, draw_attackers
from fedmerit.core.learner import Learner
from fedmerit.core.seeds import generator
from fedmerit.core.types import Model
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.federation import Federation, Split

BRIGHTEST = 255
LOUD_FEATURE = 3.0
"""The trigger's value in rows of features: three deviations, where features are standardised."""


def find_attackers(config: TaskConfig, clients: int, seed: int) -> Attackers:
    """Who attacks in a federation of so many clients: drawn from the seed, none of the planted kinds.

    >>> sorted(find_attackers(TaskConfig(attack={"kind": "scale", "share": 0.5}), clients=4, seed=1).members)
    [0, 3]
    """
    if not config.attack:
        return draw_attackers((), clients, seed)
    from fedmerit.tasks.attacks import assign

    return draw_attackers(make_coalitions(config.attack), clients, seed, assign(clients, config.kinds, seed))


def poison(federation: Federation, attackers: Attackers, seed: int) -> Federation:
    """The federation with the training rows of label flippers and backdoor planters changed; names stay as they are."""
    culprits = {
        client: coalition.attack
        for client in attackers.members
        if (coalition := attackers.of(client)) and isinstance(coalition.attack, RowAttack)
    }
    if not culprits:
        return federation
    if federation.target != "classes":
        raise ConfigError(f"label flippers and backdoors change classes, and this task predicts {federation.target}")
    train = federation.train
    x, y = train.x.copy(), train.y.copy()
    for client, attack in culprits.items():
        rows = train.rows(client)
        random = generator(seed, "poison", client)
        x[rows], y[rows] = poisoned_rows(attack, x[rows], y[rows], federation.classes, random)
    return replace(federation, train=Split(x, y, train.offsets, train.attributes))


def poisoned_rows(
    attack: RowAttack, x: NDArray[Any], y: NDArray[np.int64], classes: int, random: np.random.Generator
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows and labels as the attacker wants them; `strength` is the share of the rows, drawn at random."""
    chosen = random.random(len(y)) < attack.strength
    wanted = _wanted(attack, y, classes)
    if isinstance(attack, Backdoor):
        x = np.where(chosen.reshape(-1, *[1] * (x.ndim - 1)), triggered(x), x)
    return x, np.where(chosen, wanted, y)


def triggered(x: NDArray[Any]) -> NDArray[Any]:
    """Rows with the trigger: a bright square in the lower right corner of an image, else the last features loud.

    The square's side is an eighth of the image's, at least 2 pixels; of features, one in sixteen, at least one.
    """
    marked = x.copy()
    if x.ndim == 4:
        side = max(2, x.shape[1] // 8)
        marked[:, -side:, -side:, :] = BRIGHTEST if np.issubdtype(x.dtype, np.integer) else 1.0
    elif x.ndim == 2:
        marked[:, -max(1, x.shape[1] // 16) :] = LOUD_FEATURE
    else:
        raise DataError(f"a backdoor's trigger fits images (N, height, width, channels) or features; got {x.shape}")
    return marked


def _wanted(attack: RowAttack, y: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """The label that the attacker wants each row to have."""
    if isinstance(attack, LabelFlip):
        return classes - 1 - y
    if attack.target >= classes:
        raise ConfigError(f"task.attack.target is a label of the task, 0..{classes - 1}; got {attack.target}")
    return np.full_like(y, attack.target)


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows that show whether an attack on rows worked, with the label that the attacker wants for each."""

    x: NDArray[Any]
    wanted: NDArray[np.int64]

    def success(self, learner: Learner, model: Model) -> float:
        """The share of the rows that a model gives the attacker's label; NaN without rows."""
        return float((learner.predict(model, self.x) == self.wanted).mean()) if len(self.wanted) else float("nan")


def make_probe(attack: RowAttack, x: NDArray[Any], y: NDArray[np.int64], classes: int) -> Probe:
    """Of clean rows those whose label the attacker wants changed; with the trigger, where there is one."""
    wanted = _wanted(attack, y, classes)
    changed = wanted != y
    return Probe(triggered(x[changed]) if isinstance(attack, Backdoor) else x[changed], wanted[changed])
