"""What do robust aggregators cost? Seconds and memory of 100 updates of 6.6 million values.

python -m reproductions.experiments.robust cost  # resumes what was stopped
python -m reproductions.experiments.robust tell  # prints the table
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.seeds import generator
from fedmerit.core.server.aggregators import NNM, CoordinateMedian, GeometricMedian, MultiKrum, TrimmedMean
from fedmerit.core.server.server import Aggregator, Batch, Mean
from fedmerit.core.updates import Updates

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "runs" / "robust"


def costs() -> dict[str, Aggregator]:
    """What is timed."""
    return {
        "mean": Mean(),
        "geometric median": GeometricMedian(),
        "multi-Krum": MultiKrum(0.2),
        "median": CoordinateMedian(),
        "trimmed mean": TrimmedMean(0.2),
        "NNM + trimmed mean": NNM(TrimmedMean(0.2), 0.2),
    }


LARGE: list[NDArray[np.float32]] = []
"""The matrix that `timed` reads, in processes that inherit it."""


def timed(name: str, equal: bool) -> tuple[float, float]:
    """Seconds, and megabytes beyond the matrix, of one aggregator; in a process of its own."""
    rows = LARGE[0]
    weights = np.ones(len(rows)) if equal else generator(0, "weights").random(len(rows))
    rows.max()  # all pages are there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = perf_counter()
    costs()[name](Batch(Updates(rows)), weights / weights.sum())
    seconds = perf_counter() - begun
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def cost() -> None:
    """100 updates of 6.6 million values: 2.5 GB."""
    rows = np.empty((100, 6_600_000), np.float32)
    drawn = generator(0, "rows").standard_normal(2 * rows.shape[1], dtype=np.float32)
    for place, row in enumerate(rows):  # drawing all of them would take longer than the rest
        row[:] = drawn[place * 50_021 :][: len(row)]
    LARGE.append(rows)
    KEPT.mkdir(parents=True, exist_ok=True)
    target = KEPT / "cost.json"
    found = json.loads(target.read_text()) if target.exists() else {}
    for name, equal in ((name, equal) for name in costs() for equal in (True, False)):
        label = f"{name}, {'equal' if equal else 'other'} weights"
        if label not in found:
            with get_context("fork").Pool(1) as pool:
                found[label] = pool.apply(timed, (name, equal))
            target.write_text(json.dumps(found, indent=1))


def cost_table() -> Iterator[str]:
    """A line per aggregator."""
    found = json.loads((KEPT / "cost.json").read_text())
    yield "| aggregator | seconds | MB beyond the updates |"
    yield "| --- | ---: | ---: |"
    for name, (seconds, megabytes) in found.items():
        yield f"| {name} | {seconds:.1f} | {megabytes:.0f} |"


def main() -> None:
    """Measure, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "tell"))
    if parser.parse_args().what == "cost":
        cost()
    else:
        print("\n".join(cost_table()))


if __name__ == "__main__":
    main()
