"""From raw rows to a federation: partition, test and validation sets, and each client's rows side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.core.types import Samples
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.attacks import plant
from fedmerit.tasks.federation import Federation, Split
from fedmerit.tasks.partition import Parts, Rows, no_ids, partition
from fedmerit.tasks.raw import Raw
from fedmerit.tasks.task_spec import TaskSpec
from fedmerit.tasks.testsets import TestWay, common, given, own
from fedmerit.tasks.validation import keep


def build(
    train: Raw, test: Raw | None, config: TaskConfig, kind: TaskSpec, seed: int, random_share: float | None = None
) -> Federation:
    """The federation that [task] asks for; without a test set, each client's own rows are split.

    With `random_share`, `slices` of a client's own rows are that share of them at random, not the first fifth.
    """
    config = settled(config, kind)
    train, server = _set_apart(train, config, seed)
    parts = partition(train.y, train.ids, config, _clients(train, config, kind), seed, train.attributes)
    if test is None:
        train_rows, test_rows = _own(train, parts, config, seed, random_share)
    else:
        train_rows, test_rows = (
            parts.rows,
            common([train.y[rows] for rows in parts.rows], test.y, _test_way(config), seed),
        )
    train_rows, validation_rows = _keep(train_rows, config.validation, seed)
    federation = Federation(
        names=parts.names,
        train=_split(train, train_rows),
        test=_split(train if test is None else test, test_rows),
        classes=train.classes,
        validation=_split(train, validation_rows),
        server=server,
    )
    return plant(federation, config.kinds, config.attribute, config.against, seed)


def _set_apart(train: Raw, config: TaskConfig, seed: int) -> tuple[Raw, Samples | None]:
    """What is left for clients, and the rows that the server keeps, drawn at random."""
    if not config.server:
        return train, None
    if config.server >= len(train):
        raise DataError(f"task.server leaves clients no row: {config.server} of {len(train)} training rows")
    rows = np.sort(generator(seed, "server rows").permutation(len(train))[: config.server])
    attributes = {name: column[rows] for name, column in train.attributes.items()}
    rest = np.setdiff1d(np.arange(len(train)), rows)
    return train.take(rest), Samples(train.x[rows], train.y[rows], train.classes, attributes)


def settled(config: TaskConfig, kind: TaskSpec) -> TaskConfig:
    """The settings with the task's own in place of `default`, if it can be sampled and spread in that way.

    Asked before anything is loaded.
    """
    if config.sample != 1 and not kind.sampled:
        raise _not_sampled(config, kind)
    config = kind.settled(config)
    if config.partition in kind.partitions:
        return config
    if config.partition == "natural":
        raise no_ids()
    raise ConfigError(
        f"task {kind.name!r} cannot be spread by partition {config.partition!r}; valid: {', '.join(kind.partitions)}"
    )


def _not_sampled(config: TaskConfig, kind: TaskSpec) -> ConfigError:
    from fedmerit.tasks import TASKS  # the table imports the tasks, and these import this file

    having = ", ".join(name for name, other in TASKS.items() if other.sampled)
    return ConfigError(
        f"task.sample draws writers as LEAF does, for these tasks only: {having}; "
        f"got task.sample = {config.sample:g} for task {kind.name!r}; leave it at 1"
    )


def _own(
    train: Raw, parts: Parts, config: TaskConfig, seed: int, random_share: float | None
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows where clients are tested on rows of their own."""
    if train.for_test is not None and config.partition == "natural" and config.test == "slices":
        return given(parts.rows, parts.names, train.for_test)
    if random_share is None:
        return own(parts.rows, train.y, _test_way(config), seed)
    return own(parts.rows, train.y, "random" if config.test == "slices" else "matched", seed, random_share)


def _test_way(config: TaskConfig) -> TestWay:
    return "matched" if config.test == "matched" else "slices"


def _keep(rows: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Training and validation rows; a share that is too small for any row is a mistake, and not the same as none."""
    trains, kept = keep(rows, share, seed)
    if share and not any(map(len, kept)):
        raise DataError(
            f"task.validation = {share:g} keeps no row of any client: the largest of {len(rows)} has "
            f"{max(map(len, rows))} training rows; raise task.validation or set it to 0"
        )
    return trains, kept


def _clients(train: Raw, config: TaskConfig, kind: TaskSpec) -> int | None:
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
