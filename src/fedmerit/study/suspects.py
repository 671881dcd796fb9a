"""Suspects of a run: clients with repeated anomalies; with planted attackers, also precision and recall."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from fedmerit.config.schema import make_config
from fedmerit.core.attacks.attack import NOBODY, Attackers
from fedmerit.core.suspects import (
    LEAST_ROUNDS,
    LEAST_SHARE,
    RoundSeen,
    Suspect,
    find_suspects,
    is_refusal,
    look,
)
from fedmerit.core.types import EMPTY, ClientId
from fedmerit.store.ledger import Event, Ledger, WeightColumns
from fedmerit.study.text_table import TextTable, known, number_text
from fedmerit.tasks.attackers import find_attackers

SILENT = ("left-out", "refused")
"""Kinds of events about a client that are not notes on its answer."""
RULE = (
    f"A client is a suspect after anomalies in at least {LEAST_ROUNDS} rounds and in at least {LEAST_SHARE:.0%} of the "
    "rounds in which it answered. This is not a proof, and reported facts alone never suffice. The recipe decides on "
    "weights, not this list."
)


def suspects_of(ledger: Ledger, weights: Mapping[int, WeightColumns] = EMPTY) -> list[Suspect]:
    """Find the suspects after the last round; empty for ledgers without observations.

    `weights` has the weights of rounds that are already read.
    """
    return find_suspects([look(seen) for seen in _rounds(ledger, weights)])


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
        places = [place for place, client in enumerate(columns.ids) if client in seen]
        ids = tuple(columns.ids[place] for place in places)
        pairs = np.array([seen[client] for client in ids], dtype=np.float64).reshape(-1, 2)
        facts = {name: values[places] for name, values in columns.facts.items()}
        about = [(event.client, event.kind, event.text) for event in events.get(index, []) if event.client is not None]
        refused = {client: text for client, kind, text in about if kind == "left-out" and is_refusal(text)}
        notes = tuple(note for note in about if note[1] not in SILENT)
        yield RoundSeen(index, ids, pairs[:, 0], pairs[:, 1], facts, refused, notes)


def answered_rounds(ledger: Ledger) -> dict[ClientId, int]:
    """Count the rounds in which each client answered, whether weighted or left out."""
    counts = {client: rounds for client, (rounds, _) in ledger.work_done().items()}
    for event in ledger.events():
        if event.kind == "left-out" and event.client is not None:
            counts[event.client] = counts.get(event.client, 0) + 1
    return counts


def planted_attackers(ledger: Ledger) -> Attackers:
    """The attackers of a run, by its configuration and seed; none if the ledger has no configuration."""
    meta = ledger.meta()
    if "config" not in meta:
        return NOBODY
    config = make_config(json.loads(meta["config"]))
    return find_attackers(config.task, len(ledger.names()), config.run.seed)


def detection(ledger: Ledger, suspects: Sequence[Suspect], attackers: Attackers) -> tuple[float, float]:
    """Compute precision and recall of the suspects; NaN without suspects or without attackers that answered."""
    suspected = {suspect.client for suspect in suspects}
    planted = attackers.members.keys() & answered_rounds(ledger).keys()
    return (
        len(suspected & planted) / len(suspected) if suspected else math.nan,
        len(suspected & planted) / len(planted) if planted else math.nan,
    )


def suspects_dict(ledger: Ledger, weights: Mapping[int, WeightColumns] = EMPTY) -> dict[str, Any]:
    """Suspects as plain values for JSON; `planted` is None if the run's configuration has no attackers."""
    names, suspects, attackers = ledger.names(), suspects_of(ledger, weights), planted_attackers(ledger)
    precision, recall = detection(ledger, suspects, attackers)
    planted = {"clients": sorted(attackers.members), "precision": known(precision), "recall": known(recall)}
    return {
        "rule": RULE,
        "rounds": ledger.last_round(),
        "clients": len(names),
        "suspects": [
            asdict(suspect) | {"name": names[suspect.client], "kinds": suspect.kinds, "summary": suspect.summary}
            for suspect in suspects
        ],
        "planted": planted if attackers.members else None,
    }


def suspects_screen(values: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Make the screen output of `suspects_dict`."""
    suspects = values["suspects"]
    if not suspects:
        yield f"none of {values['clients']} clients is a suspect after {values['rounds']} rounds"
    else:
        are = "is a suspect" if len(suspects) == 1 else "are suspects"
        title = f"{len(suspects)} of {values['clients']} clients {are} after {values['rounds']} rounds"
        rows = []
        for suspect in suspects:
            kinds = ", ".join(f"{kind} {len(rounds)}" for kind, rounds in suspect["kinds"].items())
            rows.append((suspect["name"], str(suspect["since"]), str(suspect["answered"]), kinds))
        yield TextTable(title, ("client", "since round", "rounds", "anomaly, rounds"), tuple(rows)).screen()
        for suspect in suspects:
            yield Text(f"{suspect['name']}: {suspect['summary']}")
    yield Text(RULE, "dim")
    if truth := values["planted"]:
        precision, recall = (number_text(truth[key], 2) for key in ("precision", "recall"))
        planted = len(truth["clients"])
        yield Text(f"planted attackers: {planted}; precision {precision}, recall {recall}", "dim")
