"""A run as Prometheus reads it: rounds, accuracy, seconds per stage, bytes, left-out clients, the last weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fedmerit.store.ledger import Ledger

Sample = tuple[Mapping[str, str], float]
"""Labels and a value."""


def prometheus_text(ledger: Ledger) -> str:
    """The text format of Prometheus, version 0.0.4; what is not known is left out."""
    return "".join(_lines(ledger))


def _lines(ledger: Ledger) -> Iterator[str]:
    rounds, names = ledger.rounds(), ledger.names()
    yield from _family("rounds_total", "counter", "rounds that are in the ledger", [({}, len(rounds))])
    known = [row["accuracy"] for row in rounds if row["accuracy"] is not None]
    yield from _family("accuracy", "gauge", "accuracy when it was last measured", [({}, one) for one in known[-1:]])
    values = [row["value"] for row in rounds if row["value"] is not None]
    measured: list[Sample] = [({"name": ledger.measure}, one) for one in values[-1:]]
    yield from _family("measure", "gauge", "the run's measure when it was last measured", measured)
    seconds: Counter[str] = Counter()
    for row in rounds:
        seconds.update(row["seconds"])
    stages: list[Sample] = [({"stage": stage}, total) for stage, total in sorted(seconds.items())]
    yield from _family("stage_seconds_total", "counter", "seconds of all rounds, by stage", stages)
    moved: list[Sample] = [({"direction": way}, sum(row[f"bytes_{way}"] for row in rounds)) for way in ("down", "up")]
    yield from _family("bytes_total", "counter", "bytes to clients and from them", moved)
    left_out = Counter(
        event.client for event in ledger.events() if event.kind == "left-out" and event.client is not None
    )
    missed: list[Sample] = [({"client": name}, left_out[client]) for client, name in enumerate(names)]
    yield from _family("left_out_total", "counter", "rounds from which a client was left out", missed)
    last = ledger.weights(rounds[-1]["round"]) if rounds else []
    weights: list[Sample] = [({"client": names[one.id]}, one.weight) for one in last]
    yield from _family("weight", "gauge", "weight of each client in the last round", weights)


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP fedmerit_{name} {about}\n# TYPE fedmerit_{name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"fedmerit_{name}{f'{{{inside}}}' if inside else ''} {value:.10g}\n"


def _escaped(text: str) -> str:
    """A label's value: a backslash, a quote and the end of a line are written with a backslash."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
