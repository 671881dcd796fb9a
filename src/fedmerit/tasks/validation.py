"""Validation rows: the part of each client's training rows that it does not train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator

Rows: TypeAlias = NDArray[np.int64]


def keep(clients: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Training and validation rows per client: a share of its rows at random, but never all of them."""
    if share == 0:
        return list(clients), [np.empty(0, dtype=np.int64) for _ in clients]
    kept = [_draw(rows, share, seed, client) for client, rows in enumerate(clients)]
    return [np.setdiff1d(rows, some) for rows, some in zip(clients, kept, strict=True)], kept


def _draw(rows: Rows, share: float, seed: int, client: int) -> Rows:
    count = max(0, min(round(share * len(rows)), len(rows) - 1))
    return np.sort(generator(seed, "validation rows", client).permutation(rows)[:count])
