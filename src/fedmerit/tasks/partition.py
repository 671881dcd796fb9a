"""Partitions: distribute the training rows over clients.

`iid`, `shards` and `dirichlet` give the same rows as the partitioners of flwr-datasets 0.6.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.federation import Ids
from fedmerit.tasks.registry import MADE, SENSITIVE, TASKS, find_task

Rows: TypeAlias = NDArray[np.int64]
NO_ATTRIBUTES: Mapping[str, NDArray[Any]] = {}
SHARDS = 2
"""Shards per client, as in McMahan et al. 2017."""
ATTEMPTS = 11
"""Attempts of a Dirichlet partition until every client has a row: one and ten more, as in flwr-datasets."""


class Parts(NamedTuple):
    """Each client's rows in ascending order, and its name."""

    rows: list[Rows]
    names: tuple[str, ...]


def partition(
    labels: NDArray[np.int64],
    ids: Ids | None,
    config: TaskConfig,
    clients: int | None,
    seed: int,
    attributes: Mapping[str, NDArray[Any]] = NO_ATTRIBUTES,
) -> Parts:
    """Distribute the rows as `config.partition` says; every client gets one or more.

    Except with `label-draws`, no row goes to two clients. `clients` may be None only for natural partitions: all owners
    in the data.
    """
    if config.partition == "natural":
        return _natural(ids, clients, seed)
    if clients is None:
        raise ConfigError(f"partition {config.partition!r} needs a number of clients; set task.clients")
    if clients > len(labels):
        raise DataError(
            f"more clients than samples: {clients} clients, {len(labels)} training rows; "
            f"set task.clients to {len(labels)} or fewer"
        )
    if config.partition in SENSITIVE:
        labels = _codes(labels, attributes, config)
    rows = _made(labels, config, clients, seed)
    return Parts([np.sort(part) for part in rows], tuple(map(str, range(clients))))


def _made(labels: NDArray[np.int64], config: TaskConfig, clients: int, seed: int) -> list[Rows]:
    # Shuffled first, because blocks are cut from this order and files may be sorted (CelebA's is, by person).
    order = generator(seed, "partition order").permutation(len(labels))
    match config.partition:
        case "iid":
            return np.array_split(order, clients)  # the first clients get one row more if it does not divide
        case "shards":
            return _shards(labels, order, clients, seed)
        case "dirichlet" | "attribute" | "attribute-label":
            return _dirichlet(labels, order, clients, config.alpha, seed)
        case "label-groups":
            return _label_groups(labels, clients, config.groups, seed)
        case "label-draws":
            return _label_draws(labels, clients, config, seed)
    raise UnknownName("partition", config.partition, (*MADE, *SENSITIVE, "natural"))


def _codes(labels: NDArray[np.int64], attributes: Mapping[str, NDArray[Any]], config: TaskConfig) -> NDArray[np.int64]:
    """Stand-in for the label in a Dirichlet partition: the attribute's value, or attribute and label."""
    columns = [] if config.partition == "attribute" else [labels]
    for name in config.attribute.split("+"):
        if name not in attributes:
            names = ", ".join(sorted(attributes)) or "none"
            raise DataError(f"partition {config.partition!r} needs the attribute {name!r}; the data has: {names}")
        columns.append(attributes[name])
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _shards(labels: NDArray[np.int64], order: Rows, clients: int, seed: int) -> list[Rows]:
    """Assign equal shards of the rows, sorted by label, at random; rows beyond clients x SHARDS x size are unused."""
    shards = clients * SHARDS
    if len(labels) < shards:
        raise DataError(
            f"partition 'shards' needs a row per shard: {clients} clients with {SHARDS} shards each, "
            f"{len(labels)} training rows; lower task.clients"
        )
    by_label = order[np.argsort(labels[order], kind="stable")]
    size = len(labels) // shards
    dealt = generator(seed, "partition").permutation(len(labels) // size)[:shards]
    return list(by_label[: len(labels) // size * size].reshape(-1, size)[dealt].reshape(clients, -1))


def _dirichlet(labels: NDArray[np.int64], order: Rows, clients: int, alpha: float, seed: int) -> list[Rows]:
    """Split each label's rows in shares p ~ Dirichlet(alpha, ..., alpha); repeat while a client is empty.

    Client k gets the rows between the places floor(n (p_1 + ... + p_k-1)) and floor(n (p_1 + ... + p_k)) of n.
    """
    by_label = [order[labels[order] == label] for label in np.unique(labels)]
    random = generator(seed, "partition")
    for _ in range(ATTEMPTS):
        ends = [np.cumsum(random.dirichlet([alpha] * clients)) * len(rows) for rows in by_label]
        shares = [np.split(rows, places.astype(int)[:-1]) for rows, places in zip(by_label, ends, strict=True)]
        parts = [np.concatenate(share) for share in zip(*shares, strict=True)]
        if all(map(len, parts)):
            return parts
    raise DataError(
        f"partition 'dirichlet' left a client without rows in {ATTEMPTS} draws: {clients} clients, "
        f"{len(labels)} training rows, alpha {alpha:g}; raise task.alpha or lower task.clients"
    )


def _label_groups(labels: NDArray[np.int64], clients: int, groups: Sequence[Sequence[int]], seed: int) -> list[Rows]:
    """Put clients in consecutive groups, and distribute each group's rows evenly at random over its clients."""
    _check_groups(labels, clients, groups)
    parts: list[Rows] = []
    for number, (group, count) in enumerate(zip(groups, group_sizes(clients, len(groups)), strict=True)):
        rows = np.flatnonzero(np.isin(labels, group))
        if len(rows) < count:
            raise DataError(
                f"label group {list(group)} has {len(rows)} training rows for {count} clients; lower task.clients"
            )
        parts += np.array_split(generator(seed, "partition", number).permutation(rows), count)
    return parts


def _label_draws(labels: NDArray[np.int64], clients: int, config: TaskConfig, seed: int) -> list[Rows]:
    """Put clients in consecutive groups; each draws rows of its group's labels, with random counts per label [M2F].

    Shares of the labels come from a Dirichlet distribution. Clients draw independently, so a row may be with several:
    20 disjoint sets of 1,500 rows do not exist in the 29,906 rows of M2F's second group [M2F].
    """
    groups = config.groups
    _check_groups(labels, clients, groups)
    parts: list[Rows] = []
    for group, count in zip(groups, group_sizes(clients, len(groups)), strict=True):
        even = max(int(np.isin(labels, group).sum()) // count, 1)
        least, most = config.size or (even, even)
        for client in range(len(parts), len(parts) + count):
            random = generator(seed, "partition", client)
            size = round(most * random.uniform(least / most, 1.0))
            parts.append(_draw_labels(labels, group, size, config.alpha, random))
    return parts


def _draw_labels(
    labels: NDArray[np.int64], group: Sequence[int], size: int, alpha: float, random: np.random.Generator
) -> Rows:
    """Draw `size` rows with these labels in Dirichlet shares; other labels replace one that runs out."""
    rows = {label: random.permutation(np.flatnonzero(labels == label)) for label in group}
    counts = random.multinomial(size, random.dirichlet([alpha] * len(group)))
    drawn = [part[:count] for part, count in zip(rows.values(), counts, strict=True)]
    rest = np.concatenate([part[count:] for part, count in zip(rows.values(), counts, strict=True)])
    lacking = size - sum(map(len, drawn))
    if lacking > len(rest):
        raise DataError(
            f"partition 'label-draws' needs {lacking} more rows for a client, but {len(rest)} are left; lower task.size"
        )
    return np.concatenate([*drawn, random.permutation(rest)[:lacking]])


def group_sizes(clients: int, groups: int) -> list[int]:
    """Number of clients per group: as equal as possible, the first groups larger."""
    return [len(block) for block in np.array_split(np.arange(clients), groups)]


def _check_groups(labels: NDArray[np.int64], clients: int, groups: Sequence[Sequence[int]]) -> None:
    named = [label for group in groups for label in group]
    lists = [list(group) for group in groups]
    present = np.unique(labels).tolist()
    rules = {
        f"one list of labels per group, none empty (got {lists})": bool(groups) and all(groups),
        f"each label in one group only (got {lists})": len(set(named)) == len(named),
        f"only labels of the data, {present} (got {lists})": set(named) <= set(present),
        f"at least one client per group (got {clients} clients, {len(groups)} groups)": clients >= len(groups),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise ConfigError(f"a partition by label groups needs task.groups such as [[1, 2, 3], [0, 4]]: {broken[0]}")


def _natural(ids: Ids | None, clients: int | None, seed: int) -> Parts:
    """Make one client per id, in the order of the ids; with a number, that many at random.

    This equals NaturalIdPartitioner of flwr-datasets.
    """
    if ids is None:
        raise no_ids()
    people = np.unique(ids.values)
    if clients is not None and clients > len(people):
        raise DataError(
            f"there are more clients than owners: task.clients = {clients}, but the data has {len(people)} with the id "
            f"{ids.word!r}; set task.clients to {len(people)} or fewer"
        )
    chosen = np.sort(generator(seed, "partition").permutation(people)[:clients])
    order = np.argsort(ids.values, kind="stable")
    starts = np.searchsorted(ids.values, chosen, sorter=order)
    ends = np.searchsorted(ids.values, chosen, side="right", sorter=order)
    rows = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    return Parts(rows, tuple(ids.name(int(value)) for value in chosen))


def no_ids() -> ConfigError:
    """Error for natural partitions of data without ids."""
    having = ", ".join(name for name in TASKS if "natural" in find_task(name).partitions)
    return ConfigError(
        f"partition 'natural' needs data with an owner for each row, which this task lacks; "
        f"use one of the tasks {having}, or set task.partition to one of {', '.join(MADE)}"
    )
