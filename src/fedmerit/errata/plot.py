"""Finding 1 as a picture: the share of weight that the later criteria move against the number of clients (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10

from fedmerit.errata.finding1 import PAPERS, Point
from fedmerit.weights import VISIBLE

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 24, 44, 52
CLIENTS_TO, SHARE_FROM, SHARE_TO = 1000, 1e-4, 1.0
STYLE = (
    "<style>.ink{fill:#222}.soft{fill:#666}.grid{stroke:#ddd}.mark{stroke:#999}"
    ".sum{stroke:#b2182b}.max{stroke:#2166ac}.sum-ink{fill:#b2182b}.max-ink{fill:#2166ac}</style>"
)


def draw(points: Sequence[Point]) -> str:
    """Both axes are logarithmic; the picture has its own white ground, so that a dark page does not swallow it."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="13">'
    title = "<title>Share of weight that the criteria after the first move, against the number of clients</title>"
    parts = [head, title, STYLE, f'<rect fill="#fff" width="{WIDTH}" height="{HEIGHT}"/>', *_axes(), *_marks()]
    parts += _curve("sum", [(point.clients, point.by_sum.moved) for point in points])
    parts += _curve("max", [(point.clients, point.by_max.moved) for point in points])
    return "\n".join([*parts, "</svg>", ""])


def _x(clients: float) -> float:
    return LEFT + log10(clients) / log10(CLIENTS_TO) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return TOP + log10(SHARE_TO / share) / log10(SHARE_TO / SHARE_FROM) * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, text: str, css: str = "ink", anchor: str = "start") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, css: str, dash: str = "none") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{css}" {ends} stroke-dasharray="{dash}"/>'


def _axes() -> Iterator[str]:
    yield _text(16, 24, "Share of weight that the criteria after the first move (mean of random rounds)")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "clients in the round", anchor="middle")
    for power in range(5):
        share = 10.0**-power
        yield _line(LEFT, _y(share), WIDTH - RIGHT, _y(share), "grid")
        yield _text(LEFT - 8, _y(share) + 4, f"{100 * share:g} %", anchor="end")
    for clients in (1, 10, 100, 1000):
        yield _line(_x(clients), TOP, _x(clients), HEIGHT - BOTTOM, "grid")
        yield _text(_x(clients), HEIGHT - BOTTOM + 18, str(clients), anchor="middle")


def _marks() -> Iterator[str]:
    """The papers' rounds, and where fedmerit says that a priority does nothing."""
    for clients, data in PAPERS.items():
        yield _line(_x(clients), TOP, _x(clients), HEIGHT - BOTTOM, "mark", "3 4")
        yield _text(_x(clients) - 6, TOP + 16, f"{data}: {clients}", "soft", "end")
    yield _line(LEFT, _y(VISIBLE), WIDTH - RIGHT, _y(VISIBLE), "mark", "7 4")
    yield _text(LEFT + 6, _y(VISIBLE) + 16, "below: note idle-priority", "soft")


def _curve(way: str, values: Sequence[tuple[int, float]]) -> Iterator[str]:
    places = [(_x(clients), _y(share)) for clients, share in values]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="{way}" fill="none" stroke-width="2.5" points="{line}"/>'
    for x, y in places:
        yield f'<circle class="{way}-ink" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    x, y = places[len(places) // 2]
    yield _text(x + 12, y - 10, f"normalise = {way}", f"{way}-ink")
