"""Finding 1 as a picture: the share of weight that the later criteria move against the number of clients (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10

from fedmerit.core.weights import VISIBLE
from fedmerit.papers.errata.finding1 import PAPERS, Point
from fedmerit.papers.svg import MARK, SOFT, curve, dot, line, picture, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 24, 44, 52
CLIENTS_TO, SHARE_FROM, SHARE_TO = 1000, 1e-4, 1.0
COLOURS = {"sum": "#b2182b", "max": "#2166ac"}


def draw(points: Sequence[Point]) -> str:
    """Both axes are logarithmic."""
    title = "Share of weight that the criteria after the first move, against the number of clients"
    sums = _curve("sum", [(point.clients, point.by_sum.moved) for point in points])
    largest = _curve("max", [(point.clients, point.by_max.moved) for point in points])
    return picture(WIDTH, HEIGHT, title, [*_axes(), *_marks(), *sums, *largest])


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


def _marks() -> Iterator[str]:
    """The papers' rounds, and where fedmerit says that a priority does nothing."""
    for clients, data in PAPERS.items():
        yield line(_x(clients), TOP, _x(clients), HEIGHT - BOTTOM, MARK, "3 4")
        yield text(_x(clients) - 6, TOP + 16, f"{data}: {clients}", SOFT, "end")
    yield line(LEFT, _y(VISIBLE), WIDTH - RIGHT, _y(VISIBLE), MARK, "7 4")
    yield text(LEFT + 6, _y(VISIBLE) + 16, "below: note idle-priority", SOFT)


def _curve(way: str, values: Sequence[tuple[int, float]]) -> Iterator[str]:
    places, colour = [(_x(clients), _y(share)) for clients, share in values], COLOURS[way]
    yield curve([x for x, _ in places], [y for _, y in places], colour)
    yield from (dot(x, y, colour) for x, y in places)
    x, y = places[len(places) // 2]
    yield text(x + 12, y - 10, f"normalise = {way}", colour)
