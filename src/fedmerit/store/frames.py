"""Frames: a run's ledger as pandas tables, for notebooks and exports; pandas is imported on first use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.state import SERVER
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.store.ledger import Ledger, WeightColumns

Frame: TypeAlias = Any
"""A pandas.DataFrame; not named in types, since pandas is optional."""

Line: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""An array per column: for tables of a million lines."""


def pandas() -> Any:
    """Import pandas, or raise a ConfigError that says how to install it."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("frames need pandas, which is not installed: pip install 'fedmerit[report]'") from None
    return pandas


def make_frame(lines: Iterator[Line] | Sequence[Line] | Columns, columns: Sequence[str]) -> Frame:
    """Make a frame with a row per line: these columns first, also without any line, then all further keys."""
    if isinstance(lines, Mapping):
        return pandas().DataFrame(lines, columns=list(dict.fromkeys([*columns, *lines])))
    rows = list(lines)
    others = dict.fromkeys(key for line in rows for key in line if key not in columns)
    return pandas().DataFrame(rows, columns=[*columns, *others])


def run_frame(ledger: Ledger, name: str) -> Frame:
    """One of the tables `FRAMES` of a run."""
    if name not in FRAMES:
        raise UnknownName("frame of a run", name, FRAMES)
    columns, lines = FRAMES[name]
    return make_frame(lines(ledger), columns)


def _rounds(ledger: Ledger) -> Iterator[Line]:
    """A line per round: accuracy, the run's measure (value), its percentiles, bytes, seconds in all and by stage."""
    for row in ledger.rounds():
        stages = row.pop("seconds")
        by_stage = {f"seconds {stage}": value for stage, value in stages.items()}
        yield row | {"priority": " > ".join(row["priority"]), "seconds": sum(stages.values())} | by_stage


def _clients(ledger: Ledger) -> Iterator[Line]:
    """A line per evaluated round and client: its local test; accuracy None without test rows."""
    names = ledger.names()
    for index, client, correct, size in ledger.evaluations():
        who = {"round": index, "client": client, "name": names[client]}
        yield who | {"correct": correct, "size": size, "accuracy": correct / size if size else None}


def _weights(ledger: Ledger) -> Columns:
    """A line per round and weighed client: facts, criteria, normalised criteria, score and weight."""
    names, rounds = np.array(ledger.names(), dtype=object), range(1, ledger.last_round() + 1)
    tables = [_weights_of_round(index, ledger.weight_columns(index), names) for index in rounds]
    tables = [table for table in tables if len(table["round"])]
    gaps = [np.full(len(table["round"]), np.nan) for table in tables]
    return {
        name: np.concatenate([table.get(name, gap) for table, gap in zip(tables, gaps, strict=True)])
        for name in dict.fromkeys(name for table in tables for name in table)
    }


def _weights_of_round(index: int, of_round: WeightColumns, names: NDArray[Any]) -> dict[str, NDArray[Any]]:
    parts = {"fact": of_round.facts, "criterion": of_round.criteria, "normalised": of_round.normalised}
    clients = np.array(of_round.ids, dtype=np.int64)
    return {
        "round": np.full(len(clients), index),
        "client": clients,
        "name": names[clients],
        "weight": of_round.weights,
        "score": of_round.scores,
        "group": of_round.groups,
        "uncapped": np.full(len(clients), None) if of_round.uncapped is None else of_round.uncapped,
        **{f"{part} {key}": values for part, of in parts.items() for key, values in of.items()},
    }


def _rewards(ledger: Ledger) -> Iterator[Line]:
    """A line per reward: what a client with a personal model got back, and whether it took it."""
    names = ledger.names()
    return (asdict(reward) | {"name": names[reward.client]} for reward in ledger.rewards())


def _audits(ledger: Ledger) -> Iterator[Line]:
    """A line per audited round, client (or the server) and objective."""
    names = ledger.names()
    for index, client, objective, value in ledger.audits():
        name = "server" if client == SERVER else names[client]
        yield {"round": index, "client": client, "name": name, "objective": objective, "value": value}


def _candidates(ledger: Ledger) -> Iterator[Line]:
    """A line per weighting that a search thought of, in the order of visiting."""
    for index in range(1, ledger.last_round() + 1):
        for place, result in enumerate(ledger.candidates(index)):
            yield {"round": index, "place": place} | asdict(result) | {"same": ", ".join(result.same)}


def _events(ledger: Ledger) -> Iterator[Line]:
    """A line per event: left-out clients with the reason, notes on the weights."""
    return (asdict(event) for event in ledger.events())


FRAMES: Mapping[str, tuple[Sequence[str], Callable[[Ledger], Iterator[Line] | Columns]]] = {
    "rounds": (("round", "accuracy", "value", "p10", "p50", "p90", "bytes_down", "bytes_up", "seconds"), _rounds),
    "clients": (("round", "client", "name", "correct", "size", "accuracy"), _clients),
    "weights": (("round", "client", "name", "weight", "score", "group"), _weights),
    "rewards": (("round", "client", "name", "entries", "bytes", "accepted", "before", "after", "reason"), _rewards),
    "audits": (("round", "client", "name", "objective", "value"), _audits),
    "candidates": (("round", "place", "weighting", "same", "quality", "exchange", "chosen"), _candidates),
    "events": (("round", "client", "kind", "text"), _events),
}
"""The frames of a run by name: the columns that are always there, and the lines."""
