"""From raw rows to a federation: partition, test and validation rows, and each client's rows in one block.

`task.test = "slices"` is what the papers' code does; `matched` gives each client the labels it trains on.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig, check_options
from fedmerit.core.seeds import generator
from fedmerit.core.types import Samples
from fedmerit.errors import ConfigError, DataError, UnknownName
from fedmerit.tasks.attackers import plant
from fedmerit.tasks.federation import Federation, Raw, Split
from fedmerit.tasks.partition import Parts, Rows, no_ids, partition
from fedmerit.tasks.registry import TaskSpec

TestWay: TypeAlias = Literal["slices", "matched", "random"]
"""`random` is LEAF's split: rows drawn at random, whatever their labels."""
TEST_SHARE = 0.2
"""Share of a client's rows for testing if the data has no test set (CelebA)."""


def build_federation(
    train: Raw, test: Raw | None, config: TaskConfig, spec: TaskSpec, seed: int, random_share: float | None = None
) -> Federation:
    """Build the federation of [task]; without a test set, each client's rows are split.

    With `random_share`, `slices` are that share of a client's rows at random, not the first fifth.
    """
    config = settle(config, spec)
    return planted(spread(train, test, config, spec, seed, random_share), config, seed)


def spread(
    train: Raw, test: Raw | None, config: TaskConfig, spec: TaskSpec, seed: int, random_share: float | None = None
) -> Federation:
    """Distribute the rows over clients by settled settings; no client is planted.

    Clients of `task.without` leave: of natural clients the rows are never seen, so that the data might not have had
    them; if clients are drawn or made, the remaining ones keep the rows that they had.
    """
    _check_partition(train, config)
    natural = config.partition == "natural" and config.clients is None
    train = _without_owners(train, config.without) if natural else train
    train, server = _set_apart(train, config, seed)
    parts = partition(train.kinds, train.ids, config, _clients(train, config, spec), seed, train.attributes)
    if test is None:
        trained, tested = _own(train, parts, config, seed, random_share)
    else:
        labels = [train.kinds[rows] for rows in parts.rows]
        trained, tested = parts.rows, common_test_rows(labels, test.kinds, _way(config, "slices"), seed)
    trained, validated = validation_rows(trained, config.validation, seed)
    federation = Federation(
        names=parts.names,
        train=_split(train, trained),
        test=_split(train if test is None else test, tested),
        classes=train.classes,
        validation=_split(train, validated),
        server=server,
        target=train.target,
    )
    return federation if natural or not config.without else federation.without(config.without)


def _without_owners(train: Raw, names: Sequence[str]) -> Raw:
    """The rows of all owners but these."""
    if train.ids is None or not names:
        return train
    values = np.unique(train.ids.values)
    owners = {train.ids.name(int(value)): value for value in values}
    for name in names:
        if name not in owners:
            raise UnknownName("client to leave", name, owners)
    return train.take(~np.isin(train.ids.values, [owners[name] for name in names]))


def planted(federation: Federation, config: TaskConfig, seed: int) -> Federation:
    """Plant the kinds of clients of [task]."""
    if not config.kinds:
        return federation
    return plant(federation, config.kinds, config.attribute, seed)


def settle(config: TaskConfig, spec: TaskSpec) -> TaskConfig:
    """Replace `default` by the task's settings, and check that the task supports them.

    Data sets call it before they load anything.
    """
    if not isinstance(config.test, str):
        raise ConfigError(f"task.test may be a share only for tables (got {config.test:g} for task {spec.name!r})")
    chosen = spec.partitions[0] if config.partition == "default" else config.partition
    if chosen not in spec.partitions:
        if chosen == "natural":
            raise no_ids()
        valid = ", ".join(spec.partitions)
        raise ConfigError(f"task {spec.name!r} does not support partition {chosen!r}; use one of: {valid}")
    test = spec.test if config.test == "default" else config.test
    settled = config.model_copy(update={"partition": chosen, "test": test})
    check_options(settled)
    return settled


def _check_partition(train: Raw, config: TaskConfig) -> None:
    """Require classes for partitions by class."""
    if train.target != "classes" and config.partition not in ("natural", "iid", "attribute"):
        raise ConfigError(
            f"partition {config.partition!r} needs classes, but task.target = {train.target!r} has none; "
            "use natural, iid or attribute"
        )


def _set_apart(train: Raw, config: TaskConfig, seed: int) -> tuple[Raw, Samples | None]:
    """Draw the server's rows at random; return the remaining rows for clients, and the server's."""
    if not isinstance(config.server, int) or not config.server:  # a file is for nodes
        return train, None
    if config.server >= len(train):
        raise DataError(
            f"task.server = {config.server} leaves no rows for clients ({len(train)} training rows); lower task.server"
        )
    rows = np.sort(generator(seed, "server rows").permutation(len(train))[: config.server])
    return train.take(np.setdiff1d(np.arange(len(train)), rows)), train.samples(rows)


def _own(
    train: Raw, parts: Parts, config: TaskConfig, seed: int, random_share: float | None
) -> tuple[list[Rows], list[Rows]]:
    """Split each client's rows into training and test rows."""
    if train.for_test is not None and config.partition == "natural" and config.test == "slices":
        return given_test_rows(parts.rows, parts.names, train.for_test)
    if random_share is None:
        return own_test_rows(parts.rows, train.kinds, _way(config, "slices"), seed)
    return own_test_rows(parts.rows, train.kinds, _way(config, "random"), seed, random_share)


def _way(config: TaskConfig, slices: TestWay) -> TestWay:
    """How test rows are drawn; `slices` is the meaning of that setting here."""
    return "matched" if config.test == "matched" else slices


def _clients(train: Raw, config: TaskConfig, spec: TaskSpec) -> int | None:
    """Number of clients: as set, otherwise the task's default, otherwise all owners in the data."""
    if config.clients is not None or config.partition == "natural":
        return config.clients
    if spec.clients is None and train.ids is not None:
        return len(np.unique(train.ids.values))
    return spec.clients


def _split(raw: Raw, clients: Sequence[Rows]) -> Split:
    """Concatenate the clients' rows."""
    samples = raw.samples(np.concatenate(clients))
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in clients])]).astype(np.int64)
    return Split(samples.x, samples.y, offsets, samples.attributes)


def common_test_rows(
    train: Sequence[NDArray[np.int64]], test: NDArray[np.int64], way: TestWay, seed: int
) -> list[Rows]:
    """Rows of a common test set per client, from each client's training labels and the test labels."""
    if way == "slices":
        return np.array_split(np.arange(len(test), dtype=np.int64), len(train))
    parts: list[list[Rows]] = [[np.empty(0, dtype=np.int64)] for _ in train]
    for label in np.unique(test):
        held = np.array([np.count_nonzero(labels == label) for labels in train])
        if held.any():
            rng = generator(seed, "test rows", int(label))
            rows = rng.permutation(np.flatnonzero(test == label))
            ends = np.cumsum(deal(len(rows), held, rng))
            for part, chunk in zip(parts, np.split(rows, ends[:-1]), strict=True):
                part.append(chunk)
    return [np.sort(np.concatenate(part)) for part in parts]


def own_test_rows(
    clients: Sequence[Rows], labels: NDArray[np.int64], way: TestWay, seed: int, share: float = TEST_SHARE
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows per client if every client is tested on a share of its rows."""
    tests = [client_test_rows(rows, labels[rows], way, seed, client, share) for client, rows in enumerate(clients)]
    return [np.setdiff1d(rows, test) for rows, test in zip(clients, tests, strict=True)], tests


def given_test_rows(
    clients: Sequence[Rows], names: Sequence[str], for_test: NDArray[np.bool_]
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows per client if the data marks its test rows."""
    for name, rows in zip(names, clients, strict=True):
        if for_test[rows].all():
            raise DataError(
                f"every client needs a training row, but all {len(rows)} rows of {name} are test rows; "
                'set task.test = "matched" to split the rows anew, or remove this client from the data'
            )
    return [rows[~for_test[rows]] for rows in clients], [rows[for_test[rows]] for rows in clients]


def validation_rows(clients: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Training and validation rows per client: a share of its rows at random, but never all of them.

    A share that is too small for any row is an error, not the same as 0.
    """
    if share == 0:
        return list(clients), [np.empty(0, dtype=np.int64) for _ in clients]
    held_rows = [client_validation_rows(rows, share, seed, client) for client, rows in enumerate(clients)]
    if not any(map(len, held_rows)):
        raise DataError(
            f"task.validation = {share:g} gives no client a validation row: the largest of {len(clients)} has "
            f"{max(map(len, clients))} training rows; raise task.validation or set it to 0"
        )
    return [np.setdiff1d(rows, held) for rows, held in zip(clients, held_rows, strict=True)], held_rows


def deal(total: int, shares: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Distribute `total` items in proportion to the shares: integer parts first, the rest by the largest remainders.

    Equal remainders are ranked at random, so that no client gets them all. A share of 0 gets nothing.
    """
    counts, rest = np.divmod(total * shares, shares.sum())
    order = np.lexsort((rng.permutation(len(shares)), -rest))
    counts[order[: total - counts.sum()]] += 1
    return np.asarray(counts, dtype=np.int64)


def client_test_rows(rows: Rows, labels: NDArray[np.int64], way: TestWay, seed: int, client: int, share: float) -> Rows:
    """Draw a share of the rows, rounded: a fifth of 1 or 2 rows is 0, so that one is left for training.

    `random` rounds training rows down as LEAF does, but to no less than one; this matches LEAF's split of all 300
    writers that we have.
    """
    total = round(share * len(rows))
    if way == "slices":
        return np.sort(rows)[:total]
    rng = generator(seed, "own test rows", client)
    if way == "random":
        total = len(rows) - max(1, int((1 - share) * len(rows)))
        return np.sort(rng.permutation(rows)[:total])
    kinds, held = np.unique(labels, return_counts=True)
    counts = deal(total, held, rng)
    chosen = [rng.permutation(rows[labels == kind])[:count] for kind, count in zip(kinds, counts, strict=True)]
    return np.sort(np.concatenate(chosen))


def client_validation_rows(rows: Rows, share: float, seed: int, client: int) -> Rows:
    """Draw a share of the client's rows at random, but never all of them."""
    count = max(0, min(round(share * len(rows)), len(rows) - 1))
    return np.sort(generator(seed, "validation rows", client).permutation(rows)[:count])
