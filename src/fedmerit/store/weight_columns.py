"""The weights of a round column by column, and what clients contributed over rounds: for tables, pages and frames.

`Ledger.weights` gives the same as one value per client. Here the texts of a round are parsed as one list.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import ClientId, Vector

if TYPE_CHECKING:
    pass

QUERY = """SELECT client, score, weight, grp, uncapped, facts, criteria, normalised
FROM weights WHERE round = ? ORDER BY client"""


@dataclass(frozen=True, slots=True)
class WeightColumns:
    """How the clients of a round came to their weights: an array per column, in client order; NaN where unknown.

    `uncapped` is None where the recipe has no cap.
    """

    ids: tuple[ClientId, ...]
    facts: dict[str, Vector]
    criteria: dict[str, Vector]
    normalised: dict[str, Vector]
    scores: Vector
    weights: Vector
    groups: NDArray[np.int64]
    uncapped: Vector | None

    @property
    def earned(self) -> Vector:
        """The weights before any cap."""
        return self.weights if self.uncapped is None else self.uncapped


def read_columns(db: sqlite3.Connection, index: int) -> WeightColumns:
    """The weights of a round; no rows where nobody could be weighed."""
    rows = db.execute(QUERY, (index,)).fetchall()
    ids, scores, weights, groups, uncapped, *texts = zip(*rows, strict=True) if rows else ((),) * 8
    facts, criteria, normalised = map(_by_name, texts)
    return WeightColumns(
        ids,
        facts,
        criteria,
        normalised,
        np.array(scores, dtype=np.float64),
        np.array(weights, dtype=np.float64),
        np.array(groups, dtype=np.int64),
        None if None in uncapped or not rows else np.array(uncapped, dtype=np.float64),
    )


def _by_name(texts: Sequence[str]) -> dict[str, Vector]:
    """A column per name of JSON objects, in the order in which names come; NaN where an object lacks it."""
    rows: list[dict[str, float]] = json.loads(f"[{','.join(texts)}]")
    keys = dict.fromkeys(map(tuple, rows))  # one, except where a client reported less or more than the others
    names = list(dict.fromkeys(name for some in keys for name in some))
    values = [[*row.values()] if len(keys) == 1 else [row.get(name) for name in names] for row in rows]
    return dict(zip(names, np.array(values, dtype=np.float64).T.copy(), strict=True)) if names else {}
