"""The weights of a round column by column: what tables, pages and frames of many rounds are made of.

A row at a time a ledger gives its weights as values (`Ledger.weights`). Here the texts of a round are put together in
SQLite and read as one list of numbers: four to five times as fast.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.types import ClientId, Vector

TEXTS = """SELECT group_concat(facts), group_concat(criteria), group_concat(normalised)
FROM (SELECT facts, criteria, normalised FROM weights WHERE round = ? ORDER BY client)"""
LETTERS, FIGURES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789.+-e"
"""What stands for names, and what numbers in JSON are made of."""
NO_FIGURES = bytes(set(range(256)) - {*FIGURES, *b","})
"""What is left out of a list of numbers."""
NUMBERS = "SELECT client, score, weight, grp, uncapped FROM weights WHERE round = ? ORDER BY client"


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
    rows = db.execute(NUMBERS, (index,)).fetchall()
    ids, scores, weights, groups, uncapped = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    texts = db.execute(TEXTS, (index,)).fetchone()
    facts, criteria, normalised = (_by_name(text or "") for text in texts)
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


def read_facts(db: sqlite3.Connection, index: int) -> tuple[tuple[ClientId, ...], dict[str, Vector]]:
    """Who was weighed in a round, in client order, and their facts by name."""
    rows = db.execute("SELECT client, facts FROM weights WHERE round = ? ORDER BY client", (index,)).fetchall()
    return tuple(client for client, _ in rows), _by_name(",".join(text for _, text in rows))


def _by_name(objects: str) -> dict[str, Vector]:
    """A column per name of JSON objects with a comma between them, in the order in which names come."""
    found = _of_one_form(objects)
    return _of_any_form(objects) if found is None else found


def _of_one_form(objects: str) -> dict[str, Vector] | None:
    """The same where all objects have the first one's names in its order, and numbers: read as one list of these.

    A letter stands for each name that has a figure or a comma of its own. With the figures taken out, the rest must be
    that of the first object, repeated, and no name may have lost a figure by that; then what is no figure goes, and the
    numbers are left.
    """
    try:
        names = list(json.loads(objects[: objects.find("}") + 1]))
    except ValueError:
        return None
    if not 0 < len(names) <= len(LETTERS):
        return None
    keys = [f"{json.dumps(name)}: " for name in names]
    for place, (letter, key) in enumerate(zip(LETTERS, keys, strict=False)):
        if len(key) != len(key.encode().translate(None, FIGURES + b",")):
            objects, keys[place] = objects.replace(key, letter), letter
    raw, one = objects.encode(), f"{{{', '.join(keys)}}}".encode()
    form = raw.translate(None, FIGURES)
    rows = (len(form) + 1) // (len(one) + 1)
    if form != b",".join([one] * rows) or any(objects.count(key) != rows for key in keys):
        return None
    numbers = json.loads(b"[" + raw.translate(None, NO_FIGURES) + b"]")
    return dict(zip(names, np.array(numbers, dtype=np.float64).reshape(-1, len(names)).T.copy(), strict=True))


def _of_any_form(objects: str) -> dict[str, Vector]:
    rows: list[dict[str, float]] = json.loads(f"[{objects}]")
    keys = dict.fromkeys(map(tuple, rows))  # one, but where somebody told less or more than others
    names = list(dict.fromkeys(name for some in keys for name in some))
    values = [[*row.values()] if len(keys) == 1 else [row.get(name) for name in names] for row in rows]
    return dict(zip(names, np.array(values, dtype=np.float64).T.copy(), strict=True)) if names else {}
