"""Charts (SVG): accuracy over the rounds as curves with bands, and bars with intervals over the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.study.statistics import interval
from reproductions import svg

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 56, 220, 40, 48
"""The frame of the curves."""

BARS_WIDTH, BARS_LEFT, BARS_TOP, ROW_HEIGHT, BAR_HEIGHT = 760, 240, 34, 52, 13
BAR_COLOURS = ("#555555", "#e08214", "#2166ac")
LONGEST_VALUE, LONGEST_BAR = 0.7, 440
"""Larger values get the longest bar too."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A name for the legend, values of shape (seeds, rounds), and how it is drawn."""

    name: str
    values: Matrix
    colour: str
    dash: str


Ends: TypeAlias = tuple[float, float]
"""The lowest and the highest value of the vertical axis."""


def draw_curves(title: str, curves: Sequence[Curve], axis: str = "iteration", ends: Ends = (0.0, 1.0)) -> str:
    """The mean of the seeds as a line, from the lowest to the highest seed as a band behind it."""
    rounds = max((curve.values.shape[1] for curve in curves), default=1)
    bands = [_band(curve, rounds, ends) for curve in curves if len(curve.values) > 1]
    lines = [_line(curve, rounds, ends) for curve in curves]
    return svg.picture(WIDTH, HEIGHT, title, [*_axes(title, rounds, axis, ends), *bands, *lines, *_legend(curves)])


def _x(rounds: int) -> Vector:
    return np.linspace(LEFT, WIDTH - RIGHT, rounds)


def _y(values: Vector, ends: Ends) -> Vector:
    low, high = ends
    return TOP + (1 - np.clip((np.nan_to_num(values) - low) / (high - low), 0, 1)) * (HEIGHT - TOP - BOTTOM)


def _line(curve: Curve, rounds: int, ends: Ends) -> str:
    mean = curve.values.mean(axis=0)
    return svg.curve(_x(rounds)[: len(mean)], _y(mean, ends), curve.colour, curve.dash)


def _band(curve: Curve, rounds: int, ends: Ends) -> str:
    low, high = curve.values.min(axis=0), curve.values.max(axis=0)
    return svg.band(_x(rounds)[: len(low)], _y(low, ends), _y(high, ends), curve.colour)


def _axes(title: str, rounds: int, axis: str, ends: Ends) -> Iterator[str]:
    yield svg.text(LEFT, 22, f"{title}: mean of the seeds, bands from the lowest to the highest seed")
    for value in np.linspace(*ends, 6 if ends[0] == 0 else 5).tolist():  # five, so that 0 is one of them
        y = float(_y(np.array([value]), ends)[0])
        yield svg.line(LEFT, y, WIDTH - RIGHT, y)
        yield svg.text(LEFT - 8, y + 4, f"{value:.3g}", anchor="end")
    for iteration in sorted({1, *(round(rounds * part / 4) for part in range(1, 5))} - {0}):
        yield svg.text(float(_x(rounds)[iteration - 1]), HEIGHT - BOTTOM + 20, str(iteration), anchor="middle")
    yield svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, axis, anchor="middle")


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    for place, curve in enumerate(curves):
        y = TOP + 14 + 20 * place
        yield svg.curve([WIDTH - RIGHT + 14, WIDTH - RIGHT + 44], [y - 4, y - 4], curve.colour, curve.dash)
        yield svg.text(WIDTH - RIGHT + 50, y, curve.name, curve.colour)


def draw_bars(metrics: Sequence[str], rows: Mapping[str, Sequence[Vector]]) -> str:
    """For each row a bar per metric, where shorter is better; a row has one value per seed and metric."""
    parts = [part for place, (name, values) in enumerate(rows.items()) for part in _bars(place, name, values)]
    legend = [
        svg.text(BARS_LEFT + 160 * place, 20, name, colour)
        for place, (name, colour) in enumerate(zip(metrics, BAR_COLOURS, strict=True))
    ]
    title = f"{', '.join(metrics)} of each row, shorter is better, with 95 % intervals over the seeds"
    return svg.picture(BARS_WIDTH, BARS_TOP + ROW_HEIGHT * len(rows), title, [*legend, *parts])


def _bars(place: int, name: str, values: Sequence[Vector]) -> Iterator[str]:
    top = BARS_TOP + ROW_HEIGHT * place
    yield svg.text(BARS_LEFT - 10, top + 24, name, anchor="end")
    for number, (by_seed, colour) in enumerate(zip(values, BAR_COLOURS, strict=True)):
        known = by_seed[~np.isnan(by_seed)]
        if not len(known):
            continue
        y, mean = top + (BAR_HEIGHT + 1) * number, float(known.mean())
        low, high = (end if not np.isnan(end) else mean for end in interval(known))
        middle = y + BAR_HEIGHT / 2
        yield svg.bar(BARS_LEFT, y, _length(mean), BAR_HEIGHT, colour)
        yield svg.line(BARS_LEFT + _length(low), middle, BARS_LEFT + _length(high), middle, svg.INK)
        yield svg.text(BARS_LEFT + _length(high) + 6, y + BAR_HEIGHT - 2, f"{mean:.3f}", colour)


def _length(value: float) -> float:
    return min(value, LONGEST_VALUE) / LONGEST_VALUE * LONGEST_BAR
