"""Suspects of a run, read from its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedmerit.core.suspects import Looked, RoundSeen, Suspect, find_suspects, is_refusal, look
from fedmerit.core.types import EMPTY
from fedmerit.store.ledger import Event, Ledger
from fedmerit.store.weight_columns import WeightColumns

SILENT = ("left-out", "refused")
"""Events about one client that are no note on its answer: why it was left out, and rewards that it refused."""


def suspects_of(ledger: Ledger, weights: Mapping[int, WeightColumns] = EMPTY) -> list[Suspect]:
    """Who is suspected after the last round, by client; nobody in ledgers that kept no observations.

    `weights` are those of rounds that are read already.
    """
    return find_suspects(looked_at(ledger, weights))


def looked_at(ledger: Ledger, weights: Mapping[int, WeightColumns] = EMPTY) -> list[Looked]:
    """Every round, with what was odd in it."""
    return [look(seen) for seen in _rounds(ledger, weights)]


def _rounds(ledger: Ledger, weights: Mapping[int, WeightColumns]) -> Iterator[RoundSeen]:
    observed: dict[int, dict[int, tuple[float, float]]] = {}
    for index, client, norm, cosine in ledger.observations():
        observed.setdefault(index, {})[client] = norm, np.nan if cosine is None else cosine
    events: dict[int, list[Event]] = {}
    for event in ledger.events():
        events.setdefault(event.round, []).append(event)
    for row in ledger.rounds():
        index = row["round"]
        seen, columns = observed.get(index, {}), weights.get(index) or ledger.weight_columns(index)
        weighed, facts = columns.ids, columns.facts
        places = [place for place, client in enumerate(weighed) if client in seen]
        ids = tuple(weighed[place] for place in places)
        pairs = np.array([seen[client] for client in ids], dtype=np.float64).reshape(-1, 2)
        facts = {name: values[places] for name, values in facts.items()}
        about = [(event.client, event.kind, event.text) for event in events.get(index, []) if event.client is not None]
        refused = {client: text for client, kind, text in about if kind == "left-out" and is_refusal(text)}
        notes = tuple(note for note in about if note[1] not in SILENT)
        yield RoundSeen(index, ids, pairs[:, 0], pairs[:, 1], facts, refused, notes)
