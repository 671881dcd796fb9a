"""Splits: which rows each client is tested on, and which of its training rows it keeps for validation.

`slices` is the way of the papers' code, `matched` gives each client the labels it trains on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.errors import DataError

Rows: TypeAlias = NDArray[np.int64]
TestWay: TypeAlias = Literal["slices", "matched"]
OwnWay: TypeAlias = Literal["slices", "matched", "random"]
"""`random` is LEAF's way: rows drawn at random, whatever their labels."""
TEST_SHARE = 0.2
"""Share of a client's own rows that is kept for testing where the data has no test set (CelebA)."""


def common_test_rows(
    train: Sequence[NDArray[np.int64]], test: NDArray[np.int64], way: TestWay, seed: int
) -> list[Rows]:
    """Rows of a common test set per client, given each client's training labels and the test labels."""
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
    clients: Sequence[Rows], labels: NDArray[np.int64], way: OwnWay, seed: int, share: float = TEST_SHARE
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows per client where every client is tested on a share of its own rows."""
    tests = [client_test_rows(rows, labels[rows], way, seed, client, share) for client, rows in enumerate(clients)]
    trains = [np.setdiff1d(rows, test) for rows, test in zip(clients, tests, strict=True)]
    return trains, tests


def given_test_rows(
    clients: Sequence[Rows], names: Sequence[str], for_test: NDArray[np.bool_]
) -> tuple[list[Rows], list[Rows]]:
    """Training and test rows per client where the data says which rows are for testing."""
    for name, rows in zip(names, clients, strict=True):
        if for_test[rows].all():
            raise DataError(
                f"every client needs a row to train on; {name} has {len(rows)}, all for testing; "
                'set task.test = "matched" to split the rows anew, or take this client out of the data'
            )
    return [rows[~for_test[rows]] for rows in clients], [rows[for_test[rows]] for rows in clients]


def validation_rows(clients: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Training and validation rows per client: a share of its rows at random, but never all of them.

    A share that is too small for any row is a mistake, and not the same as none.
    """
    if share == 0:
        return list(clients), [np.empty(0, dtype=np.int64) for _ in clients]
    kept = [client_validation_rows(rows, share, seed, client) for client, rows in enumerate(clients)]
    if not any(map(len, kept)):
        raise DataError(
            f"task.validation = {share:g} keeps no row of any client: the largest of {len(clients)} has "
            f"{max(map(len, clients))} training rows; raise task.validation or set it to 0"
        )
    return [np.setdiff1d(rows, held) for rows, held in zip(clients, kept, strict=True)], kept


def deal(total: int, shares: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """`total` things dealt in proportion to the shares: whole parts first, the rest to the largest remainders.

    Equal remainders are ranked at random, so that no client wins them all. A share of 0 gets nothing.
    """
    counts, rest = np.divmod(total * shares, shares.sum())
    order = np.lexsort((rng.permutation(len(shares)), -rest))
    counts[order[: total - counts.sum()]] += 1
    return np.asarray(counts, dtype=np.int64)


def client_test_rows(rows: Rows, labels: NDArray[np.int64], way: OwnWay, seed: int, client: int, share: float) -> Rows:
    """A share of the rows, rounded: of a fifth, below 3 rows none, so that at least one is left to train on.

    The random way rounds as LEAF does, training rows down but to no less than one; so did each of the 300 writers
    whose split by LEAF we have.
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
    """A share of the client's rows at random, but never all of them."""
    count = max(0, min(round(share * len(rows)), len(rows) - 1))
    return np.sort(generator(seed, "validation rows", client).permutation(rows)[:count])
