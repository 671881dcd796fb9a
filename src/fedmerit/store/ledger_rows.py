"""Rows of the ledger: what of a round's record goes into which table."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from fedmerit.core.measures import percentiles
from fedmerit.core.round import Record
from fedmerit.core.types import Verdict
from fedmerit.core.weights import Weights, by_client

NO_ANSWER = Verdict(False, reason="no answer")
Row = tuple[object, ...]


def round_row(record: Record) -> Row:
    """The round as a whole."""
    tested = record.evaluation
    accuracy = None if tested is None else tested.accuracy
    marks = (None, None, None) if tested is None else percentiles(tested.local)
    priority, seconds, found = json.dumps(record.priority), json.dumps(record.seconds), record.decision
    taken = (found.option.label, repr(found.option.way.score)) if found and found.option else (None, None)
    search = (found.exchanges, found.evaluations, found.tests) if found and found.option else (0, 0, 0)
    quality = found.standing.quality if found and found.option else None
    groups = (len(record.groups.members), record.groups.cut) if record.groups else (1, None)
    counts = record.bytes_down, record.bytes_up
    return record.index, priority, *taken, *search, *groups, quality, accuracy, *marks, *counts, seconds


def tried_rows(record: Record) -> list[Row]:
    """What its search thought of."""
    tried = record.decision.tried if record.decision else ()
    return [
        (record.index, place, one.way, json.dumps(one.same), one.quality, one.exchange, one.chosen)
        for place, one in enumerate(tried)
    ]


def earned_rows(record: Record, weights: Weights) -> list[Row]:
    """How each client came to its weight."""
    groups = record.groups.labels if record.groups else None
    return [
        (record.index, row.id, *_jsons(row.facts, row.criteria, row.normalised), row.score, row.weight, row.group)
        for row in by_client(weights, record.priority, record.ids, record.facts, groups)
    ]


def _jsons(*values: object) -> Iterator[str]:
    return map(json.dumps, values)


def reward_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    given = record.handout
    return [
        (record.index, client, len(part.values), part.size, said.accepted, said.before, said.after, said.reason)
        for client, part in sorted(given.parts.items())
        if (said := given.verdicts.get(client, NO_ANSWER))
    ]


def audit_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    return [
        (record.index, client, name, value)
        for client, found in sorted(record.audit.items())
        for name, value in found.items()
    ]


def distance_rows(record: Record) -> list[Row]:
    """How far apart each two clients were."""
    distances = record.groups.distances if record.groups else None
    if distances is None:
        return []
    pairs = distances[np.triu_indices(len(distances), 1)].astype(np.float32)
    return [(record.index, np.array(record.ids, dtype=np.int64).tobytes(), pairs.tobytes())]


def event_rows(record: Record) -> list[Row]:
    """Who was left out or refused, and the notes."""
    rows: list[Row] = [(record.index, i, "left-out", why) for i, why in sorted(record.left_out.items())]
    refused = [(i, said.reason) for i, said in sorted(record.handout.verdicts.items()) if said.reason]
    rows += [(record.index, client, "refused", reason) for client, reason in refused]
    rows += [(record.index, None, note.kind, note.text) for note in record.notes]
    if record.weights is None:
        rows.append((record.index, None, "nobody", "no client could be weighed; the model was kept"))
    else:
        rows += [(record.index, None, note.kind, note.text) for note in record.weights.notes]
    return rows
