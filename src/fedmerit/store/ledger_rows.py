"""Rows of the ledger: what of a round's record goes into which table, column by column."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.measures import percentiles
from fedmerit.core.recipe_json import part_from_json, part_to_json
from fedmerit.core.state import Record
from fedmerit.core.types import Verdict
from fedmerit.core.weights.normalise import normalise_name
from fedmerit.core.weights.scores import ExplainedScore, Score
from fedmerit.core.weights.weigh import by_client
from fedmerit.errors import DataError

NO_ANSWER = Verdict(False, reason="no answer")
Row: TypeAlias = Mapping[str, Any]


def rows_of(record: Record) -> Iterator[tuple[str, Iterator[Row]]]:
    """The rows of a round, by table; made one at a time, since a million clients may be tested in it."""
    return ((table, ({"round": record.index, **row} for row in rows(record))) for table, rows in TABLES.items())


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    """Write rows by the names of their columns."""
    waiting = iter(rows)
    if first := next(waiting, None):
        names, values = ", ".join(first), ", ".join(f":{name}" for name in first)
        db.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", chain([first], waiting))


def round_rows(record: Record) -> list[Row]:
    """The round as a whole."""
    evaluation, groups, weighting = record.evaluation, record.groups, record.weighting
    searched = record.search if weighting else None
    p10, p50, p90 = (None, None, None) if evaluation is None else percentiles(evaluation.local)
    return [
        {
            "priority": json.dumps(record.priority),
            "weighting": record.label,
            "score": part_to_json(weighting.score) if weighting else None,
            "normalise": normalise_name(weighting.normalise) if weighting else None,
            "exchanges": searched.exchanges if searched else 0,
            "evaluations": searched.models_sent if searched else 0,
            "tests": searched.tests if searched else 0,
            "groups": len(groups.members) if groups else 1,
            "cut": groups.cut if groups else None,
            "quality": searched.quality if searched else None,
            "accuracy": None if evaluation is None else evaluation.accuracy,
            "p10": p10,
            "p50": p50,
            "p90": p90,
            "epsilon": record.epsilon,
            "clip": record.numbers.get("clip"),
            "validation": record.validation,
            "bytes_down": record.bytes_down,
            "bytes_up": record.bytes_up,
            "seconds": json.dumps(dict(record.seconds)),
        }
    ]


def candidate_rows(record: Record) -> list[Row]:
    """What its search thought of."""
    results = record.search.results if record.search else ()
    return [
        {
            "place": place,
            "weighting": result.weighting,
            "same": json.dumps(result.same),
            "quality": result.quality,
            "exchange": result.exchange,
            "chosen": result.chosen,
        }
        for place, result in enumerate(results)
    ]


def weight_rows(record: Record) -> list[Row]:
    """How each client came to its weight."""
    if record.weights is None:
        return []
    groups = record.groups.labels if record.groups else None
    terms = own_terms(record)
    return [
        {
            "client": client.id,
            "facts": json.dumps(client.facts),
            "criteria": json.dumps(client.criteria),
            "normalised": json.dumps(client.normalised),
            "score": client.score,
            "weight": client.weight,
            "grp": client.group,
            "uncapped": client.uncapped,
            "terms": terms.get(place),
        }
        for place, client in enumerate(by_client(record.weights, record.priority, record.ids, record.facts, groups))
    ]


def _is_own(score: Score) -> bool:
    """Whether a score, or a part of it, is the user's own, so that it cannot be made again from its text."""
    try:
        part_from_json(part_to_json(score))
    except (DataError, TypeError):
        return True
    return False


def own_terms(record: Record) -> dict[int, str]:
    """What a score of the user's own says of its steps, by place; kept, since nothing of theirs is imported later.

    Steps that do not come to the score that counted, or that fail, are left out: a reason is true or missing.
    """
    score = record.weighting.score if record.weighting else None
    if record.weights is None or not isinstance(score, ExplainedScore) or not _is_own(score):
        return {}
    table, scores = record.weights.table, record.weights.scores
    labels = record.groups.labels if record.groups else np.zeros(len(table), dtype=np.intp)
    told: dict[int, str] = {}
    for place in range(len(table)):
        members = np.flatnonzero(labels == labels[place])
        try:
            terms = score.terms(table[members], int(np.searchsorted(members, place)))
            text = str(terms)
        except Exception:  # a user's code may raise anything
            continue
        if np.isclose(terms.score, scores[place], rtol=1e-9, atol=1e-12):
            told[place] = text
    return told


def evaluation_rows(record: Record) -> Iterator[Row]:
    """Every client's local test."""
    if record.evaluation is None:
        return
    pairs = zip(record.evaluation.correct.tolist(), record.evaluation.sizes.tolist(), strict=True)
    for client, (correct, size) in enumerate(pairs):
        yield {"client": client, "correct": correct, "size": size}


def reward_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    sent = record.rewards
    return [
        {
            "client": client,
            "entries": len(reward.values),
            "bytes": reward.nbytes,
            "accepted": verdict.accepted,
            "before": verdict.before,
            "after": verdict.after,
            "reason": verdict.reason,
        }
        for client, reward in sorted(sent.rewards.items())
        if (verdict := sent.verdicts.get(client, NO_ANSWER))
    ]


def audit_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    return [
        {"client": client, "objective": name, "value": value}
        for client, values in sorted(record.audit.items())
        for name, value in values.items()
    ]


def distance_rows(record: Record) -> list[Row]:
    """How far apart each two clients were."""
    distances = record.groups.distances if record.groups else None
    if distances is None:
        return []
    pairs = distances[np.triu_indices(len(distances), 1)].astype(np.float32)
    return [{"clients": np.array(record.ids, dtype=np.int64).tobytes(), "pairs": pairs.tobytes()}]


def observation_rows(record: Record) -> list[Row]:
    """NaN becomes NULL by SQLite's own rule."""
    seen = record.diagnostics
    if seen is None:
        return []
    lines = zip(record.ids, seen.norms.tolist(), seen.cosines.tolist(), strict=True)
    return [{"client": client, "norm": norm, "cosine": cosine} for client, norm, cosine in lines]


def event_rows(record: Record) -> list[Row]:
    """Who was left out or refused, and the notes."""
    events: list[tuple[int | None, str, str]] = [
        (i, "left-out", reason) for i, reason in sorted(record.dropped.items())
    ]
    verdicts = sorted(record.rewards.verdicts.items())
    events += [(client, "refused", verdict.reason) for client, verdict in verdicts if verdict.reason]
    events += [(note.client, note.kind, note.text) for note in record.notes]
    if record.weights is not None:
        events += [(note.client, note.kind, note.text) for note in record.weights.notes]
    elif all(kind != "nobody" for _, kind, _ in events):
        after = "the model was kept" if record.epsilon is None else "only noise was added"
        events.append((None, "nobody", f"no client could be weighed; {after}"))
    return [{"client": client, "kind": kind, "text": text} for client, kind, text in events]


TABLES: Mapping[str, Callable[[Record], Iterable[Row]]] = {
    "rounds": round_rows,
    "weights": weight_rows,
    "evaluations": evaluation_rows,
    "rewards": reward_rows,
    "distances": distance_rows,
    "audits": audit_rows,
    "candidates": candidate_rows,
    "observations": observation_rows,
    "events": event_rows,
}
"""The tables that a round writes to."""
