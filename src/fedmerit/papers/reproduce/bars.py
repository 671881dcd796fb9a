"""Bars (SVG): a few measures of each row, where shorter is better, with the interval over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.papers import svg
from fedmerit.study.statistics import interval

COLOURS = ("#555555", "#e08214", "#2166ac")
WIDTH, LEFT, TOP, STEP, BAR = 760, 240, 34, 52, 13
REACH = 440
"""The length of a bar of value `LONGEST`."""
LONGEST = 0.7


def draw_bars(measures: Sequence[str], rows: Mapping[str, Sequence[Vector]]) -> str:
    """Per row a bar for each measure."""
    parts = [part for place, (name, values) in enumerate(rows.items()) for part in _row(place, name, values)]
    legend = [
        svg.text(LEFT + 160 * place, 20, name, colour)
        for place, (name, colour) in enumerate(zip(measures, COLOURS, strict=True))
    ]
    title = f"{', '.join(measures)} of each row, shorter is better, with 95 % intervals over the seeds"
    return svg.picture(WIDTH, TOP + STEP * len(rows), title, [*legend, *parts])


def _row(place: int, name: str, values: Sequence[Vector]) -> Iterator[str]:
    top = TOP + STEP * place
    yield svg.text(LEFT - 10, top + 24, name, anchor="end")
    for number, (value, colour) in enumerate(zip(values, COLOURS, strict=True)):
        known = value[~np.isnan(value)]
        if not len(known):
            continue
        y, mean = top + (BAR + 1) * number, float(known.mean())
        low, high = (end if not np.isnan(end) else mean for end in interval(known))
        yield svg.bar(LEFT, y, _long(mean), BAR, colour)
        yield svg.line(LEFT + _long(low), y + BAR / 2, LEFT + _long(high), y + BAR / 2, svg.INK)
        yield svg.text(LEFT + _long(high) + 6, y + BAR - 2, f"{mean:.3f}", colour)


def _long(value: float) -> float:
    return min(value, LONGEST) / LONGEST * REACH
