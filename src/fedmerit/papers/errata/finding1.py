"""Finding 1: how much of the weight the criteria after the first move, against the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedmerit.core.scores import Prioritized
from fedmerit.core.seeds import generator
from fedmerit.core.types import Matrix, Normalise
from fedmerit.core.weights import total_variation, weigh
from fedmerit.papers.errata.entry import Erratum, Evidence, Step, percent, shown

CLIENTS = (2, 5, 10, 20, 37, 60, 100, 200, 417, 1000)
"""Clients in a round."""
PAPERS = {10: "MNIST", 37: "FEMNIST", 417: "CelebA"}
"""Clients in a round of the papers: PMCFL's on MNIST and CelebA, DAFL's on FEMNIST."""
DRAWS, SEED = 100, 1


class Change(NamedTuple):
    """What the later criteria change: the share of weight that changes hands, and most for one client, relatively."""

    moved: float
    largest: float


@dataclass(frozen=True, slots=True)
class Point:
    """The change with one number of clients, by either way to normalise; means over the draws."""

    clients: int
    by_sum: Change
    by_max: Change


def change(raw: Matrix, normalise: Normalise) -> Change:
    """Total variation between the weights by all criteria in order and by the first alone; and the largest ratio."""
    names = [str(place) for place in range(raw.shape[1])]
    by_all, alone = (weigh(raw[:, :m], names[:m], Prioritized(), normalise).weights for m in (len(names), 1))
    some = alone > 0  # who has no weight by the first criterion has none by all
    return Change(total_variation(by_all, alone), float(np.abs(by_all[some] / alone[some] - 1).max()))


@cache
def sweep(clients: tuple[int, ...] = CLIENTS, draws: int = DRAWS, seed: int = SEED) -> tuple[Point, ...]:
    """Three criteria drawn uniformly from 0..1 for each client, so many times for each number of clients."""
    points = []
    for n in clients:
        tables = [generator(seed, "finding-1", n, draw).uniform(size=(n, 3)) for draw in range(draws)]
        points.append(Point(n, _mean(tables, "sum"), _mean(tables, "max")))
    return tuple(points)


def _mean(tables: Sequence[Matrix], normalise: Normalise) -> Change:
    moved, largest = np.mean([change(raw, normalise) for raw in tables], axis=0)
    return Change(float(moved), float(largest))


def _evidence() -> Evidence:
    points = sweep()
    steps = []
    for point in points:
        of = f"{point.clients} clients"
        steps.append(Step(f"{of}: share of weight moved, normalise sum", point.by_sum.moved))
        steps.append(Step(f"{of}: largest change of one weight, normalise sum", point.by_sum.largest))
        steps.append(Step(f"{of}: share of weight moved, normalise max", point.by_max.moved))
    told = ", ".join(f"{percent(p.by_sum.moved, 2)} with {p.clients}" for p in points if p.clients in PAPERS)
    kept = float(np.mean([point.by_max.moved for point in points if point.clients >= 10]))
    follows = (
        "Values are then about 1/n. With random criteria, those after the first move about 1/(4n) of the weight "
        f"({told} clients). Divided by the maximum instead, they move {percent(kept)} with any number of clients "
        "from 10 on."
    )
    falls = all(fewer.by_sum.moved > more.by_sum.moved for fewer, more in pairwise(points))
    return shown(falls and points[-1].by_sum.moved < 0.001 and points[-1].by_max.moved > 0.1, follows, *steps)


FINDING_1 = Erratum(
    name="finding-1",
    title="the priority of criteria is idle",
    digest=("0.1",),
    paper="PMCFL, DAFL",
    place="Sections 4.1 and 3, normalised criteria",
    printed="Each criterion is divided by its sum over the round. The order of the criteria is what is studied.",
    fedmerit='`normalise = "sum"`, the papers\' way, is the default; a round in which the later criteria move less '
    'than 1 % of the weight gets the note `idle-priority`. `normalise = "max"` makes a priority count.',
    evidence=_evidence,
    see="results/finding1.md",
)
