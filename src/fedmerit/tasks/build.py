"""From raw rows to a federation: partition, test and validation rows, and each client's rows side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmerit.config.schema import TaskConfig, check_options
from fedmerit.core.seeds import generator
from fedmerit.core.types import Samples
from fedmerit.errors import ConfigError, DataError
from fedmerit.tasks.attackers import plant
from fedmerit.tasks.federation import Federation, Raw, Split
from fedmerit.tasks.partition import Parts, Rows, no_ids, partition
from fedmerit.tasks.registry import TaskSpec
from fedmerit.tasks.splits import TestWay, common_test_rows, given_test_rows, own_test_rows, validation_rows


def build_federation(
    train: Raw, test: Raw | None, config: TaskConfig, spec: TaskSpec, seed: int, random_share: float | None = None
) -> Federation:
    """The federation that [task] asks for; without a test set, each client's own rows are split.

    With `random_share`, `slices` of a client's own rows are that share of them at random, not the first fifth.
    """
    config = settle(config, spec)
    return planted(spread(train, test, config, spec, seed, random_share), config, seed)


def spread(
    train: Raw, test: Raw | None, config: TaskConfig, spec: TaskSpec, seed: int, random_share: float | None = None
) -> Federation:
    """The rows with the clients, as settled settings ask for it; nobody is planted."""
    _check_partition(train, config)
    train, server = _set_apart(train, config, seed)
    parts = partition(train.kinds, train.ids, config, _clients(train, config, spec), seed, train.attributes)
    if test is None:
        trained, tested = _own(train, parts, config, seed, random_share)
    else:
        labels = [train.kinds[rows] for rows in parts.rows]
        trained, tested = parts.rows, common_test_rows(labels, test.kinds, _test_way(config), seed)
    trained, validated = validation_rows(trained, config.validation, seed)
    return Federation(
        names=parts.names,
        train=_split(train, trained),
        test=_split(train if test is None else test, tested),
        classes=train.classes,
        validation=_split(train, validated),
        server=server,
        target=train.target,
    )


def planted(federation: Federation, config: TaskConfig, seed: int) -> Federation:
    """The federation with the kinds of clients that [task] plants."""
    if not config.kinds:
        return federation
    return plant(federation, config.kinds, config.attribute, seed)


def settle(config: TaskConfig, spec: TaskSpec) -> TaskConfig:
    """The settings with the task's own in place of `default`, if it can be spread in that way.

    Data sets ask before they load anything.
    """
    if not isinstance(config.test, str):
        raise ConfigError(f"task.test is a share for tables alone; got {config.test:g} for task {spec.name!r}")
    chosen = spec.partitions[0] if config.partition == "default" else config.partition
    if chosen not in spec.partitions:
        if chosen == "natural":
            raise no_ids()
        valid = ", ".join(spec.partitions)
        raise ConfigError(f"task {spec.name!r} cannot be spread by partition {chosen!r}; valid: {valid}")
    test = spec.test if config.test == "default" else config.test
    settled = config.model_copy(update={"partition": chosen, "test": test})
    check_options(settled)
    return settled


def _check_partition(train: Raw, config: TaskConfig) -> None:
    """Partitions by class need classes."""
    if train.target != "classes" and config.partition not in ("natural", "iid", "attribute"):
        raise ConfigError(
            f"partition {config.partition!r} goes by classes, and task.target = {train.target!r} has none; "
            "use natural, iid or attribute"
        )


def _set_apart(train: Raw, config: TaskConfig, seed: int) -> tuple[Raw, Samples | None]:
    """What is left for clients, and the rows that the server keeps, drawn at random."""
    if not config.server:
        return train, None
    if config.server >= len(train):
        raise DataError(f"task.server leaves clients no row: {config.server} of {len(train)} training rows")
    rows = np.sort(generator(seed, "server rows").permutation(len(train))[: config.server])
    rest = np.setdiff1d(np.arange(len(train)), rows)
    return train.take(rest), train.samples(rows)


def _own(
    train: Raw, parts: Parts, config: TaskConfig, seed: int, random_share: float | None
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows where clients are tested on rows of their own."""
    if train.for_test is not None and config.partition == "natural" and config.test == "slices":
        return given_test_rows(parts.rows, parts.names, train.for_test)
    if random_share is None:
        return own_test_rows(parts.rows, train.kinds, _test_way(config), seed)
    return own_test_rows(
        parts.rows, train.kinds, "random" if config.test == "slices" else "matched", seed, random_share
    )


def _test_way(config: TaskConfig) -> TestWay:
    return "matched" if config.test == "matched" else "slices"


def _clients(train: Raw, config: TaskConfig, spec: TaskSpec) -> int | None:
    """How many clients: as set, else the task's own number, else all people in the data."""
    if config.clients is not None or config.partition == "natural":
        return config.clients
    if spec.clients is None and train.ids is not None:
        return len(np.unique(train.ids.values))
    return spec.clients


def _split(raw: Raw, clients: Sequence[Rows]) -> Split:
    """The clients' rows, one client after the other."""
    samples = raw.samples(np.concatenate(clients))
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in clients])]).astype(np.int64)
    return Split(samples.x, samples.y, offsets, samples.attributes)
