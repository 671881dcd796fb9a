"""What trackers are told of a run: its settings, and each round as numbers of the run and of its clients.

It is read from the ledger: what a tracker shows is what was kept, and a run that is resumed goes on where each tracker
stopped.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmerit.config.schema import flatten
from fedmerit.core.stages.validation import SERVER
from fedmerit.core.types import ClientId
from fedmerit.store.ledger import Event, Ledger

COLUMNS = (
    *("accuracy", "p10", "p50", "p90", "quality", "validation", "epsilon", "clip", "groups", "cut"),
    *("exchanges", "evaluations", "tests", "bytes_down", "bytes_up"),
)
"""The columns of the ledger's rounds that are numbers."""


LONGEST = 60
"""Signs of a client's or a measure's name in a tracker, which has its own limits."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as trackers know it: its name, its settings by dotted key, and its clients' names."""

    name: str
    settings: Mapping[str, Any]
    names: tuple[str, ...]

    def scalars(self, one: LoggedRound) -> dict[str, float]:
        """All numbers of a round by names that every tracker takes: `accuracy`, `weight/CLIENT`, `criterion/DS/CLIENT`.

        The last of them is `round`: who has it has them all.
        """
        labels = client_labels(self.names)
        of_clients = {
            f"{plain_name(name)}/{labels[client]}": value
            for name, values in one.clients.items()
            for client, value in values.items()
        }
        of_run = {plain_name(name): value for name, value in one.values.items()}
        return {**of_clients, **of_run, "round": float(one.index)}


@dataclass(frozen=True, slots=True)
class LoggedRound:
    """A round: `values` of the run by name, `clients` by name and client; what is unknown is left away."""

    index: int
    values: Mapping[str, float]
    clients: Mapping[str, Mapping[ClientId, float]]
    events: tuple[Event, ...]


def plain_name(text: str) -> str:
    """A name in letters, digits and a few signs, which trackers, and paths made of it, can bear."""
    return re.sub(r"[^A-Za-z0-9_./: -]|(?<=/)[./]+|^[./]+", "_", text)[:LONGEST].strip() or "_"


def client_labels(names: Sequence[str]) -> list[str]:
    """What trackers call the clients: their names, with their numbers where these would look alike.

    >>> client_labels(["north", "a/b", "a_b"])
    ['north', 'a_b.1', 'a_b.2']
    """
    plain = [plain_name(name.replace("/", "_").replace(":", "_")) for name in names]
    counts = Counter(plain)
    return [name if counts[name] == 1 else f"{name}.{client}" for client, name in enumerate(plain)]


def read_run(ledger: Ledger, name: str) -> LoggedRun:
    """The run in a ledger."""
    meta = ledger.meta()
    settings = json.loads(meta.get("config") or meta.get("settings") or "{}")
    known = flatten(settings) if isinstance(settings, dict) else {}
    return LoggedRun(name, {key: value for key, value in known.items() if value is not None}, tuple(ledger.names()))


def read_rounds(ledger: Ledger, after: int) -> Iterator[LoggedRound]:
    """The rounds after one, oldest first.

    >>> from fedmerit import federate, fedavg, load_task
    >>> run = federate(load_task("digits", clients=4), fedavg(), rounds=2, fraction=1.0)
    >>> first, second = read_rounds(run.ledger, after=0)
    >>> round(sum(second.clients["weight"].values()), 9), second.values["clients"]
    (1.0, 4.0)
    """
    rows = ledger.rounds(after)
    if not rows:
        return
    tested: dict[int, dict[ClientId, float]] = defaultdict(dict)
    for index, client, correct, size in ledger.evaluations(after):
        if size:
            tested[index][client] = correct / size
    events: dict[int, list[Event]] = defaultdict(list)
    for event in ledger.events(after=after):
        events[event.round].append(event)
    for row in rows:
        index = row["round"]
        clients = {"local_accuracy": tested[index]} | _weighed(ledger, index)
        values = {name: row[name] for name in COLUMNS} | {f"seconds/{k}": v for k, v in row["seconds"].items()}
        counts = Counter(event.kind for event in events[index])
        values |= {"clients": len(clients.get("weight", ())), "left_out": counts["left-out"]}
        for _, client, objective, value in ledger.audits(index):
            if value is not None and client == SERVER:
                values[f"audit/{objective}"] = value
            elif value is not None:
                clients.setdefault(f"local_audit/{objective}", {})[client] = value
        known = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
        yield LoggedRound(index, known, {name: some for name, some in clients.items() if some}, tuple(events[index]))


def _weighed(ledger: Ledger, index: int) -> dict[str, dict[ClientId, float]]:
    """Weights, scores and criteria of a round's clients."""
    rows = ledger.weight_columns(index)
    columns = {"weight": rows.weights, "score": rows.scores}
    columns |= {f"criterion/{name}": values for name, values in rows.criteria.items()}
    return {
        name: {client: value for client, value in zip(rows.ids, values.tolist(), strict=True) if math.isfinite(value)}
        for name, values in columns.items()
    }
