"""Harmful clients: a task's attackers and their poisoned rows; and planted kinds of clients.

A task can plant kinds of clients among the fair ones, to see their weights [FedVal].

| kind       | change of its rows                                                                            |
| ---------- | --------------------------------------------------------------------------------------------- |
| fair       | none                                                                                          |
| imbalanced | nine of ten rows of the disadvantaged group are removed                                       |
| biased     | half of the disadvantaged group's positive labels are negative: decisions of a biased past    |
| poisoned   | all labels of the disadvantaged group are flipped, against fairness                           |
| poor       | half of all labels are random, and the inputs have noise                                      |
| free_rider | one row, repeated: it claims its size and adds nothing                                        |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.attack import make_coalitions
from fedmerit.config.task import TaskConfig
from fedmerit.core.attacks.adaptive import AT_LOADING
from fedmerit.core.attacks.attack import Attackers, draw_attackers
from fedmerit.core.attacks.rows import poisoned_rows
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.federation import Federation, Split


def find_attackers(config: TaskConfig, clients: int, seed: int) -> Attackers:
    """Draw the attackers of a federation with this many clients from the seed, none of the planted kinds.

    >>> sorted(find_attackers(TaskConfig(attack={"kind": "scale", "share": 0.5}), clients=4, seed=1).members)
    [0, 3]
    """
    return draw_attackers(make_coalitions(config.attack), clients, seed, assign(clients, config.kinds, seed))


def poison(federation: Federation, attackers: Attackers, seed: int) -> Federation:
    """Poison the training rows of attackers whose attack does so at loading; names stay unchanged."""
    culprits = {
        client: coalition.attack
        for client in attackers.members
        if (coalition := attackers.of(client)) and isinstance(coalition.attack, AT_LOADING)
    }
    if not culprits:
        return federation
    if federation.target != "classes":
        raise ConfigError(
            f"label-flip, backdoor and split-trigger attacks need classes (this task predicts {federation.target}); "
            "use another attack"
        )
    train = federation.train
    x, y = train.x.copy(), train.y.copy()
    for client, attack in culprits.items():
        rows = train.rows(client)
        random = generator(seed, "poison", client)
        x[rows], y[rows] = poisoned_rows(attack, x[rows], y[rows], federation.classes, random)
    return replace(federation, train=Split(x, y, train.offsets, train.attributes))


KEPT, TURNED, RANDOM = 0.1, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Rows:
    """Views of a client's training rows, those that stay, and those of the disadvantaged group."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    stay: NDArray[np.bool_]
    against: NDArray[np.bool_]
    classes: int
    random: np.random.Generator


def imbalanced(rows: Rows) -> None:
    """Keep few rows of the disadvantaged group, but at least one row."""
    rows.stay[:] = ~rows.against | (rows.random.random(len(rows.y)) < KEPT)
    rows.stay[0] |= not rows.stay.any()


def biased(rows: Rows) -> None:
    """Turn positives of the disadvantaged group into negatives."""
    rows.y[rows.against & (rows.y == 1) & (rows.random.random(len(rows.y)) < TURNED)] = 0


def poisoned(rows: Rows) -> None:
    """Flip the labels of the disadvantaged group."""
    rows.y[rows.against] = 1 - rows.y[rows.against]


def poor(rows: Rows) -> None:
    """Add noise to labels and inputs."""
    drawn = rows.random.integers(0, rows.classes, len(rows.y))
    rows.y[:] = np.where(rows.random.random(len(rows.y)) < RANDOM, drawn, rows.y)
    blurred = rows.x + rows.random.normal(scale=rows.x.std() or 1.0, size=rows.x.shape)
    rows.x[:] = np.clip(np.rint(blurred), 0, 255) if np.issubdtype(rows.x.dtype, np.integer) else blurred


def free_rider(rows: Rows) -> None:
    """Repeat one row."""
    one = rows.random.integers(len(rows.y))
    rows.x[:], rows.y[:] = rows.x[one], rows.y[one]


KINDS: Mapping[str, Callable[[Rows], None]] = {
    "imbalanced": imbalanced,
    "biased": biased,
    "poisoned": poisoned,
    "poor": poor,
    "free_rider": free_rider,
}
TWO_CLASSES = ("biased", "poisoned")
CHANGE_LABELS = (*TWO_CLASSES, "poor")


def plant(federation: Federation, shares: Mapping[str, float], attribute: str, seed: int) -> Federation:
    """Plant these shares of clients of each kind at random; the kind is appended to their names.

    The disadvantaged group are the rows whose `attribute` is 0.
    """
    _check_kinds(federation, shares, attribute)
    kinds, train = assign(len(federation.names), shares, seed), federation.train
    x, y, stay = train.x.copy(), train.y.copy(), np.ones(len(train.y), np.bool_)
    group = train.attributes.get(attribute, np.ones(len(train.y)))
    for client, kind in kinds.items():
        own = train.rows(client)
        if train.sizes[client]:
            random = generator(seed, "plant", client)
            KINDS[kind](Rows(x[own], y[own], stay[own], group[own] == 0, federation.classes, random))
    offsets = np.append(0, np.cumsum(stay))[train.offsets]
    attributes = {name: column[stay] for name, column in train.attributes.items()}
    names = tuple(f"{name} {kinds[i]}" if i in kinds else name for i, name in enumerate(federation.names))
    return replace(federation, names=names, train=Split(x[stay], y[stay], offsets, attributes))


def assign(clients: int, shares: Mapping[str, float], seed: int) -> dict[int, str]:
    """Draw round(share * clients) clients of each kind; no client has two kinds."""
    order = generator(seed, "kinds").permutation(clients).tolist()
    kinds: dict[int, str] = {}
    for name in KINDS:
        for client in order[len(kinds) : len(kinds) + round(shares.get(name, 0.0) * clients)]:
            kinds[client] = name
    return kinds


def _check_kinds(federation: Federation, shares: Mapping[str, float], attribute: str) -> None:
    for name in shares:
        if name not in KINDS:
            raise UnknownName("kind of client", name, KINDS)
    if sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"task.kinds: the shares must sum to at most 1 (got {sum(shares.values()):g})")
    wanted = [name for name, share in shares.items() if share and name not in ("poor", "free_rider")]
    if wanted and attribute not in federation.train.attributes:
        names = ", ".join(sorted(federation.train.attributes)) or "none"
        raise DataError(
            f"{wanted[0]} clients need the attribute {attribute!r}, the group they harm; the data has: {names}"
        )
    changing = [name for name, share in shares.items() if share and name in CHANGE_LABELS]
    if federation.target != "classes" and changing:
        raise DataError(f"{changing[0]} clients need classes (this task predicts {federation.target}); remove them")
    if federation.classes != 2 and (flipping := [name for name in wanted if name in TWO_CLASSES]):
        raise DataError(f"{flipping[0]} clients need two classes (this task has {federation.classes}); remove them")
