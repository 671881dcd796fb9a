"""Finding 1: how little of the weight the criteria after the first move; computed, and drawn (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import log10
from typing import NamedTuple

import numpy as np

from fedmerit.core.seeds import generator
from fedmerit.core.types import Matrix
from fedmerit.core.weights.scores import Prioritized
from fedmerit.core.weights.weigh import VISIBLE, Normalise, total_variation, weigh
from reproductions.errata.erratum import Erratum, Evidence, Step, percent, shown
from reproductions.svg import MARK, SOFT, curve, dot, line, picture, text

CLIENTS = (2, 5, 10, 20, 37, 60, 100, 200, 417, 1000)
"""Clients in a round."""
PAPERS = {10: "MNIST", 37: "FEMNIST", 417: "CelebA"}
"""Clients in a round of [PMCFL] on MNIST and CelebA, and of [DAFL] on FEMNIST."""
DRAWS, SEED = 100, 1

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 24, 44, 52
CLIENTS_TO, SHARE_FROM, SHARE_TO = 1000, 1e-4, 1.0
COLOURS = {"sum": "#b2182b", "max": "#2166ac"}


class Change(NamedTuple):
    """What the later criteria change: the share of weight that moves, and the largest relative change of a client."""

    moved: float
    largest: float


@dataclass(frozen=True, slots=True)
class Point:
    """The change with this number of clients, for both ways to normalise; means over the draws."""

    clients: int
    by_sum: Change
    by_max: Change


def change(raw: Matrix, normalise: Normalise) -> Change:
    """Total variation between the weights by all criteria in order and by the first alone; and the largest ratio."""
    names = [str(place) for place in range(raw.shape[1])]
    by_all, alone = (weigh(raw[:, :m], names[:m], Prioritized(), normalise).weights for m in (len(names), 1))
    some = alone > 0  # a client without weight by the first criterion has none by all
    return Change(total_variation(by_all, alone), float(np.abs(by_all[some] / alone[some] - 1).max()))


@cache
def sweep(clients: tuple[int, ...] = CLIENTS, draws: int = DRAWS, seed: int = SEED) -> tuple[Point, ...]:
    """The change for random criteria: three per client, uniform in 0..1, drawn `draws` times per number of clients."""
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
    moved = ", ".join(f"{percent(p.by_sum.moved, 2)} with {p.clients}" for p in points if p.clients in PAPERS)
    kept = float(np.mean([point.by_max.moved for point in points if point.clients >= 10]))
    follows = (
        "Values are then about 1/n. With random criteria, those after the first move about 1/(4n) of the weight "
        f"({moved} clients). Divided by the maximum instead, they move {percent(kept)} with any number of clients "
        "from 10 on."
    )
    falls = all(fewer.by_sum.moved > more.by_sum.moved for fewer, more in pairwise(points))
    return shown(falls and points[-1].by_sum.moved < 0.001 and points[-1].by_max.moved > 0.1, follows, *steps)


FINDING_1 = Erratum(
    name="finding-1",
    title="the priority of criteria has almost no effect",
    paper="PMCFL, DAFL",
    place="Sections 4.1 and 3, normalised criteria",
    printed="Each criterion is divided by its sum over the round. The order of the criteria is what is studied.",
    fedmerit='The default is `normalise = "max"`; `"sum"` is the papers\' way. A round in which the later criteria '
    "move less than 1 % of the weight gets the note `idle-priority`.",
    evidence=_evidence,
    see="papers.md#why-sum-makes-a-priority-idle",
)


def draw(points: Sequence[Point]) -> str:
    """The share of weight that moves against the number of clients, as a picture with logarithmic axes."""
    title = "Share of weight that the criteria after the first move, against the number of clients"
    sums = _curve("sum", [(point.clients, point.by_sum.moved) for point in points])
    largest = _curve("max", [(point.clients, point.by_max.moved) for point in points])
    return picture(WIDTH, HEIGHT, title, [*_axes(), *_reference_lines(), *sums, *largest])


def _x(clients: float) -> float:
    return LEFT + log10(clients) / log10(CLIENTS_TO) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return TOP + log10(SHARE_TO / share) / log10(SHARE_TO / SHARE_FROM) * (HEIGHT - TOP - BOTTOM)


def _axes() -> Iterator[str]:
    yield text(16, 24, "Share of weight that the criteria after the first move (mean of random rounds)")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "clients in the round", anchor="middle")
    for power in range(5):
        share = 10.0**-power
        yield line(LEFT, _y(share), WIDTH - RIGHT, _y(share))
        yield text(LEFT - 8, _y(share) + 4, f"{100 * share:g} %", anchor="end")
    for clients in (1, 10, 100, 1000):
        yield line(_x(clients), TOP, _x(clients), HEIGHT - BOTTOM)
        yield text(_x(clients), HEIGHT - BOTTOM + 18, str(clients), anchor="middle")


def _reference_lines() -> Iterator[str]:
    """The sizes of the papers' rounds, and the share below which fedmerit notes `idle-priority`."""
    for clients, data in PAPERS.items():
        yield line(_x(clients), TOP, _x(clients), HEIGHT - BOTTOM, MARK, "3 4")
        yield text(_x(clients) - 6, TOP + 16, f"{data}: {clients}", SOFT, "end")
    yield line(LEFT, _y(VISIBLE), WIDTH - RIGHT, _y(VISIBLE), MARK, "7 4")
    yield text(LEFT + 6, _y(VISIBLE) + 16, "below: note idle-priority", SOFT)


def _curve(normalise: str, values: Sequence[tuple[int, float]]) -> Iterator[str]:
    places, colour = [(_x(clients), _y(share)) for clients, share in values], COLOURS[normalise]
    yield curve([x for x, _ in places], [y for _, y in places], colour)
    yield from (dot(x, y, colour) for x, y in places)
    x, y = places[len(places) // 2]
    yield text(x + 12, y - 10, f"normalise = {normalise}", colour)
