"""What the bench has measured: runs by contender, medians over repeats, ratios taken within each repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

QUIET = 0.05  # the share of the cores that others may use


@dataclass
class Run:
    """One runner's answer in one repeat."""

    repeat: int
    threads: int | None
    values: dict[str, Any]
    error: str
    peak: int

    def seconds(self, part: str | None = None) -> float:
        """Seconds per round, or of one named operation."""
        times = self.values["seconds"]
        return median(times if part is None else times[part])

    def cpu(self, part: str | None = None) -> float:
        """CPU seconds of all its processes, likewise."""
        times = self.values["cpu"]
        return float(times if part is None else median(times[part]))


@dataclass
class Result:
    """All runs of one work (or of the sizes of W6), with the machine's limits at that time."""

    work: str
    title: str
    kind: str
    quick: bool
    date: str
    command: str
    commit: str = ""
    isa: str = ""  # the instruction set, as torch names it
    busy: list[float] = field(default_factory=list)  # the share of the cores that others used, before each repeat
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        """Others used so much of the machine that no figure can be held against a target."""
        return max(self.busy, default=0.0) > QUIET

    def good(self, name: str) -> list[Run]:
        """The contender's runs with its fastest threads, one per repeat."""
        runs = [run for run in self.runs.get(name, []) if not run.error]
        if not runs:
            return []
        threads = self.fastest(name)
        return [run for run in runs if run.threads == threads]

    def fastest(self, name: str) -> int | None:
        """The number of threads with which the contender was fastest in the first repeat."""
        first = [run for run in self.runs[name] if not run.error]
        first = [run for run in first if run.repeat == first[0].repeat]
        if not isinstance(first[0].values.get("seconds"), list):
            return first[0].threads
        return min(first, key=Run.seconds).threads

    def error(self, name: str) -> str:
        """Why there is no figure."""
        return next((run.error for run in self.runs.get(name, []) if run.error), "")

    def save(self, folder: Path) -> None:
        """Keep it as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.work}-{self.isa}.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Result:
        """As saved."""
        values = json.loads(path.read_text(encoding="utf-8"))
        runs = {name: [Run(**run) for run in runs] for name, runs in values.pop("runs").items()}
        return cls(**values, runs=runs)


def ratio(over: Iterable[tuple[int, float]], under: Iterable[tuple[int, float]]) -> float | None:
    """Median over the repeats of over / under, both of the same repeat."""
    below: Mapping[int, float] = dict(under)
    ratios = [value / below[repeat] for repeat, value in over if repeat in below]
    return median(ratios) if ratios else None
