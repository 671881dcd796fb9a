"""Kinds of clients that a task plants among the fair ones, to see what weights they get [FedVal].

| kind       | what is done to its rows                                                                      |
| ---------- | --------------------------------------------------------------------------------------------- |
| fair       | nothing                                                                                       |
| imbalanced | nine of ten rows of the disadvantaged group are gone                                          |
| biased     | half of the disadvantaged group's positive labels are negative: decisions of a biased past    |
| poisoned   | all labels of the disadvantaged group are flipped, against fairness                           |
| poor       | half of all labels are drawn at random, and the inputs are blurred by noise                    |
| free_rider | one row, repeated: it claims its size and brings nothing                                      |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.federation import Federation, Split

KEPT, TURNED, RANDOM = 0.1, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Rows:
    """One client's training rows, and which of them belong to the disadvantaged group."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    against: NDArray[np.bool_]
    classes: int
    random: np.random.Generator


Planted = tuple[NDArray[np.intp], NDArray[Any], NDArray[np.int64]]
"""Which of a client's rows stay, and their inputs and labels."""


def imbalanced(rows: Rows) -> Planted:
    """Few of the disadvantaged group, but never no row at all."""
    stay = ~rows.against | (rows.random.random(len(rows.y)) < KEPT)
    stay[0] |= not stay.any()
    places = np.flatnonzero(stay)
    return places, rows.x[places], rows.y[places]


def biased(rows: Rows) -> Planted:
    """Positives of the disadvantaged group turned down."""
    turned = rows.against & (rows.y == 1) & (rows.random.random(len(rows.y)) < TURNED)
    return _all(rows, rows.x, np.where(turned, 0, rows.y))


def poisoned(rows: Rows) -> Planted:
    """The disadvantaged group's labels flipped."""
    return _all(rows, rows.x, np.where(rows.against, 1 - rows.y, rows.y))


def poor(rows: Rows) -> Planted:
    """Noise on labels and inputs."""
    drawn = rows.random.integers(0, rows.classes, len(rows.y))
    labels = np.where(rows.random.random(len(rows.y)) < RANDOM, drawn, rows.y)
    noise = rows.random.normal(scale=rows.x.std() or 1.0, size=rows.x.shape)
    blurred = rows.x + noise
    if np.issubdtype(rows.x.dtype, np.integer):
        blurred = np.clip(np.rint(blurred), 0, 255)
    return _all(rows, blurred.astype(rows.x.dtype), labels)


def free_rider(rows: Rows) -> Planted:
    """The same row again and again."""
    one = np.full(len(rows.y), rows.random.integers(len(rows.y)))
    return np.arange(len(rows.y)), rows.x[one], rows.y[one]


KINDS: Mapping[str, Callable[[Rows], Planted]] = {
    "imbalanced": imbalanced,
    "biased": biased,
    "poisoned": poisoned,
    "poor": poor,
    "free_rider": free_rider,
}
TWO_CLASSES = ("biased", "poisoned")
CHANGE_LABELS = (*TWO_CLASSES, "poor")


def plant(federation: Federation, shares: Mapping[str, float], attribute: str, value: int, seed: int) -> Federation:
    """The federation with that share of its clients, at random, of each kind; their names say so.

    The disadvantaged group are the rows whose `attribute` has this value.
    """
    _check(federation, shares, attribute)
    kinds = assign(len(federation.names), shares, seed)
    if not any(kinds.values()):
        return federation
    train = federation.train
    parts = [
        _planted(federation, client, kinds.get(client), attribute, value, seed) for client in range(len(train.sizes))
    ]
    rows = np.concatenate([train.rows(client).start + places for client, (places, _, _) in enumerate(parts)])
    offsets = np.concatenate([[0], np.cumsum([len(places) for places, _, _ in parts])]).astype(np.int64)
    changed = Split(
        np.concatenate([x for _, x, _ in parts]),
        np.concatenate([y for _, _, y in parts]),
        offsets,
        {name: column[rows] for name, column in train.attributes.items()},
    )
    names = tuple(f"{name} {kinds[i]}" if i in kinds else name for i, name in enumerate(federation.names))
    return replace(federation, names=names, train=changed)


def assign(clients: int, shares: Mapping[str, float], seed: int) -> dict[int, str]:
    """Which clients are of which kind: round(share * clients) of each, drawn together so that none is two."""
    order = generator(seed, "kinds").permutation(clients).tolist()
    kinds: dict[int, str] = {}
    for name in KINDS:
        for client in order[len(kinds) : len(kinds) + round(shares.get(name, 0.0) * clients)]:
            kinds[client] = name
    return kinds


def _planted(federation: Federation, client: int, kind: str | None, attribute: str, value: int, seed: int) -> Planted:
    mine = federation.samples(client)
    against = mine.attributes[attribute] == value if attribute in mine.attributes else np.zeros(len(mine), np.bool_)
    rows = Rows(mine.x, mine.y, np.asarray(against), mine.classes, generator(seed, "plant", client))
    return _all(rows, rows.x, rows.y) if kind is None or not len(mine) else KINDS[kind](rows)


def _all(rows: Rows, x: NDArray[Any], y: NDArray[np.int64]) -> Planted:
    return np.arange(len(rows.y)), x, y


def _check(federation: Federation, shares: Mapping[str, float], attribute: str) -> None:
    for name, share in shares.items():
        if name not in KINDS:
            raise UnknownName("kind of client", name, KINDS)
        if not 0 <= share <= 1:
            raise ConfigError(f"task.kinds: the share of {name} clients lies in 0..1; got {share}")
    if sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"task.kinds: the shares of all kinds are at most 1 together; got {sum(shares.values()):g}")
    wanted = [name for name, share in shares.items() if share and name not in ("poor", "free_rider")]
    if wanted and attribute not in federation.train.attributes:
        known = ", ".join(sorted(federation.train.attributes)) or "none"
        raise DataError(f"{wanted[0]} clients harm a group by the attribute {attribute!r}; the data has: {known}")
    changing = [name for name, share in shares.items() if share and name in CHANGE_LABELS]
    if federation.target != "classes" and changing:
        raise DataError(f"{changing[0]} clients change classes, and this task predicts {federation.target}")
    if federation.classes != 2 and (flipping := [name for name in wanted if name in TWO_CLASSES]):
        raise DataError(f"{flipping[0]} clients flip labels of two classes; this task has {federation.classes}")
