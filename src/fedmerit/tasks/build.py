"""From raw rows to a federation: partition, test sets, and each client's rows side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.config import TaskConfig
from fedmerit.errors import ConfigError
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.kind import TaskKind
from fedmerit.tasks.partition import Rows, no_ids, partition
from fedmerit.tasks.raw import Raw
from fedmerit.tasks.testsets import common, own


def build(train: Raw, test: Raw | None, config: TaskConfig, kind: TaskKind, seed: int) -> Federation:
    """The federation that [task] asks for; without a test set, each client's own rows are split."""
    check_partition(config, kind)
    parts = partition(train.y, train.ids, config, _clients(train, config, kind), seed)
    if test is None:
        train_rows, test_rows = own(parts.rows, train.y, config.test, seed)
    else:
        train_rows, test_rows = parts.rows, common([train.y[rows] for rows in parts.rows], test.y, config.test, seed)
    return Federation(
        names=parts.names,
        train=_split(train, train_rows),
        test=_split(train if test is None else test, test_rows),
        classes=train.classes,
    )


def check_partition(config: TaskConfig, kind: TaskKind) -> None:
    """The task can be spread in that way; asked before anything is loaded."""
    if config.partition in kind.partitions:
        return
    if config.partition == "natural":
        raise no_ids()
    raise ConfigError(
        f"task {kind.name!r} cannot be spread by partition {config.partition!r}; valid: {', '.join(kind.partitions)}"
    )


def _clients(train: Raw, config: TaskConfig, kind: TaskKind) -> int | None:
    """How many clients: as set, else the task's own number, else all people in the data."""
    if config.clients is not None or config.partition == "natural":
        return config.clients
    if kind.clients is None and train.ids is not None:
        return len(np.unique(train.ids.values))
    return kind.clients


def _split(raw: Raw, clients: Sequence[Rows]) -> Split:
    """The clients' rows, one client after the other."""
    rows = np.concatenate(clients)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in clients])]).astype(np.int64)
    return Split(raw.x[rows], raw.y[rows], offsets, {name: column[rows] for name, column in raw.attributes.items()})
