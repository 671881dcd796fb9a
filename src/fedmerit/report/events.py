"""Events of a report: what was left out and what to know, grouped by kind, each text worded as in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmerit.store.ledger import Event


def group_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Kinds in the order in which they first occurred; within a kind the commonest text first."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    return [{"kind": kind, **_span(found), "texts": _texts(found)} for kind, found in kinds.items()]


def _texts(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Each text with every round and client it was said of; a client is None where it is said of all."""
    texts: dict[str, list[list[int | None]]] = {}
    for event in events:
        texts.setdefault(event.text, []).append([event.round, event.client])
    by_count = sorted(texts.items(), key=lambda item: -len(item[1]))
    return [{"text": text, "at": places} for text, places in by_count]


def _span(events: Sequence[Event]) -> dict[str, Any]:
    rounds = [event.round for event in events]
    clients = {event.client for event in events} - {None}
    return {"count": len(events), "first": min(rounds), "last": max(rounds), "clients": len(clients)}
