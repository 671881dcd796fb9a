"""Partitions: which training rows each client holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import derive, generator
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.extras import need, quiet
from fedmerit.tasks.raw import Ids
from fedmerit.tasks.task_spec import MADE, SENSITIVE

Rows: TypeAlias = NDArray[np.int64]
NO_ATTRIBUTES: Mapping[str, NDArray[Any]] = MappingProxyType({})


class Parts(NamedTuple):
    """Each client's rows, rising, and its name."""

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
    """Spread the rows as `config.partition` says; every client gets one or more, and but for `label-draws` no row goes
    to two clients.

    `clients` may be None for natural partitions only: all who are in the data.
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
    match config.partition:
        case "iid":
            return _flower("IidPartitioner", {}, labels, clients, seed)
        case "shards":
            return _shards(labels, clients, config.shards, seed)
        case "dirichlet" | "attribute" | "attribute-label":
            return _dirichlet(labels, clients, config.alpha, seed)
        case "label-groups":
            return _label_groups(labels, clients, config.groups, seed)
        case "label-draws":
            return _label_draws(labels, clients, config, seed)
    raise UnknownName("partition", config.partition, (*MADE, *SENSITIVE, "natural"))


def _codes(labels: NDArray[np.int64], attributes: Mapping[str, NDArray[Any]], config: TaskConfig) -> NDArray[np.int64]:
    """What takes the place of the label in a Dirichlet partition: the attribute's value, or that and the label."""
    columns = [] if config.partition == "attribute" else [labels]
    for name in config.attribute.split("+"):
        if name not in attributes:
            known = ", ".join(sorted(attributes)) or "none"
            raise DataError(f"partition {config.partition!r} needs the attribute {name!r}; the data has: {known}")
        columns.append(attributes[name])
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _flower(
    partitioner: str, options: Mapping[str, Any], labels: NDArray[np.int64], clients: int, seed: int
) -> list[Rows]:
    """The rows that a partitioner of flwr-datasets gives each client.

    Rows are shuffled before: the partitioners cut blocks out of the order they find,
    and files may be sorted (CelebA's is, by person).
    """
    order = generator(seed, "partition order").permutation(len(labels))
    made = getattr(need("flwr_datasets.partitioner"), partitioner)(num_partitions=clients, **options)
    with quiet():
        made.dataset = need("datasets").Dataset.from_dict({"row": order, "label": labels[order]})
        return [np.array(made.load_partition(client)["row"][:], dtype=np.int64) for client in range(clients)]


def _shards(labels: NDArray[np.int64], clients: int, shards: int, seed: int) -> list[Rows]:
    """Equal shards of the rows sorted by label, dealt at random; rows beyond clients x shards x size are left out."""
    if len(labels) < clients * shards:
        raise DataError(
            f"partition 'shards' needs a row per shard: {clients} clients with {shards} shards each, "
            f"{len(labels)} training rows; lower task.clients or task.shards"
        )
    options = {"partition_by": "label", "num_shards_per_partition": shards, "shuffle": False}
    return _flower("ShardPartitioner", {**options, "seed": derive(seed, "partition")}, labels, clients, seed)


def _dirichlet(labels: NDArray[np.int64], clients: int, alpha: float, seed: int) -> list[Rows]:
    """Each label's rows in shares drawn from a Dirichlet distribution; drawn anew while a client stays empty."""
    options = {"partition_by": "label", "min_partition_size": 1, "self_balancing": False, "shuffle": False}
    drawn = {**options, "alpha": float(alpha), "seed": derive(seed, "partition")}
    try:
        return _flower("DirichletPartitioner", drawn, labels, clients, seed)
    except ValueError:  # after ten draws that left a client without rows
        raise DataError(
            f"partition 'dirichlet' must give every client a row, and ten draws did not: {clients} clients, "
            f"{len(labels)} training rows, alpha {alpha:g}; raise task.alpha or lower task.clients"
        ) from None


def _label_groups(labels: NDArray[np.int64], clients: int, groups: Sequence[Sequence[int]], seed: int) -> list[Rows]:
    """Clients in consecutive groups, each group's rows spread evenly at random over its clients."""
    _check_groups(labels, clients, groups)
    parts: list[Rows] = []
    for number, (group, count) in enumerate(zip(groups, group_sizes(clients, len(groups)), strict=True)):
        rows = np.flatnonzero(np.isin(labels, group))
        if len(rows) < count:
            raise DataError(
                f"group {list(group)} has {len(rows)} training rows for {count} clients; lower task.clients"
            )
        parts += np.array_split(generator(seed, "partition", number).permutation(rows), count)
    return parts


def _label_draws(labels: NDArray[np.int64], clients: int, config: TaskConfig, seed: int) -> list[Rows]:
    """Clients in consecutive groups; each draws its rows from its group's labels, counts per label at random (M2F).

    Shares of the labels come from a Dirichlet distribution. Clients draw apart from each other, so a row may be with
    several: 20 sets of 1,500 rows each do not exist in the 29,906 of M2F's second group (SPEC B 29).
    """
    groups = config.groups
    _check_groups(labels, clients, groups)
    parts: list[Rows] = []
    for group, count in zip(groups, group_sizes(clients, len(groups)), strict=True):
        inside = np.isin(labels, group)
        full = config.size or int(inside.sum()) // count
        for client in range(len(parts), len(parts) + count):
            random = generator(seed, "partition", client)
            size = max(round(full * random.uniform(config.smallest, 1.0)), 1)
            foreign = round(config.mix * size)
            parts.append(
                np.concatenate(
                    [
                        _draw_labels(labels, group, size - foreign, config.alpha, random),
                        _draw(np.flatnonzero(~inside & np.isin(labels, _flat(groups))), foreign, random),
                    ]
                )
            )
    return parts


def _draw_labels(
    labels: NDArray[np.int64], group: Sequence[int], size: int, alpha: float, random: np.random.Generator
) -> Rows:
    """`size` rows with these labels in shares from a Dirichlet distribution; a label that runs out is made up for."""
    rows = {label: random.permutation(np.flatnonzero(labels == label)) for label in group}
    counts = random.multinomial(size, random.dirichlet([alpha] * len(group)))
    drawn = [part[:count] for part, count in zip(rows.values(), counts, strict=True)]
    rest = np.concatenate([part[count:] for part, count in zip(rows.values(), counts, strict=True)])
    return np.concatenate([*drawn, _draw(rest, size - sum(map(len, drawn)), random)])


def _draw(rows: Rows, number: int, random: np.random.Generator) -> Rows:
    if number > len(rows):
        raise DataError(
            f"partition 'label-draws' gives a client {number} rows of which there are {len(rows)}; lower task.size"
        )
    return random.permutation(rows)[:number]


def group_sizes(clients: int, groups: int) -> list[int]:
    """How many clients each group has: as even as can be, the first ones the larger."""
    return [len(block) for block in np.array_split(np.arange(clients), groups)]


def _flat(groups: Iterable[Iterable[int]]) -> list[int]:
    return [label for group in groups for label in group]


def _check_groups(labels: NDArray[np.int64], clients: int, groups: Sequence[Sequence[int]]) -> None:
    named = _flat(groups)
    known = np.unique(labels).tolist()
    rule = "a partition by label groups needs task.groups such as [[1, 2, 3], [0, 4]]"
    if not groups or not all(groups):
        raise ConfigError(f"{rule}: one list of labels per group, none empty; got {_lists(groups)}")
    if len(set(named)) != len(named):
        raise ConfigError(f"{rule}: each label in one group only; got {_lists(groups)}")
    if not set(named) <= set(known):
        raise ConfigError(f"{rule}: labels of the data, which are {known}; got {_lists(groups)}")
    if clients < len(groups):
        raise ConfigError(f"{rule}: at least one client per group; got {clients} clients, {len(groups)} groups")


def _lists(groups: Iterable[Iterable[int]]) -> list[list[int]]:
    return [list(group) for group in groups]


def _natural(ids: Ids | None, clients: int | None, seed: int) -> Parts:
    """One client per id, in the order of the ids; with a number, that many chosen at random.

    Grouped by numpy: NaturalIdPartitioner gives the same rows, but takes 2 ms per client,
    which is 20 s for the 9,343 people of CelebA.
    """
    if ids is None:
        raise no_ids()
    found = np.unique(ids.values)
    if clients is not None and clients > len(found):
        raise DataError(
            f"more clients than the data has: task.clients = {clients}, and there are {len(found)} with the id "
            f"{ids.word!r}; set task.clients to {len(found)} or fewer"
        )
    chosen = np.sort(generator(seed, "partition").permutation(found)[:clients])
    order = np.argsort(ids.values, kind="stable")
    starts = np.searchsorted(ids.values, chosen, sorter=order)
    ends = np.searchsorted(ids.values, chosen, side="right", sorter=order)
    rows = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    return Parts(rows, tuple(ids.name(int(value)) for value in chosen))


def no_ids() -> ConfigError:
    """The error for natural partitions of data that has no ids."""
    from fedmerit.tasks import TASKS  # the table imports the tasks, and these import this file

    having = [name for name, kind in TASKS.items() if "natural" in kind.partitions]
    return ConfigError(
        f"partition 'natural' needs data that says to whom each row belongs, which this has not; "
        f"tasks that have it: {', '.join(having)}; or set task.partition to one of {', '.join(MADE)}"
    )
