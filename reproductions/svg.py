"""Pictures (SVG): the frame with its own white background, texts, lines, bars, and curves with bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fedmerit.core.types import Vector

INK, SOFT, GRID, MARK = "#222", "#666", "#ddd", "#999"


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A whole picture, readable on a dark page too."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="13">'
    background = f'<rect fill="#fff" width="{width}" height="{height}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", background, *parts, "</svg>", ""])


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start") -> str:
    """A text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, dash: str = "none") -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-dasharray="{dash}"/>'


def bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def dot(x: float, y: float, colour: str) -> str:
    """A filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def curve(xs: Sequence[float] | Vector, ys: Sequence[float] | Vector, colour: str, dash: str = "none") -> str:
    """A line through points."""
    look = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    return f'<polyline {look} points="{_points(xs, ys)}"/>'


def band(xs: Vector, low: Vector, high: Vector, colour: str) -> str:
    """The area between two curves."""
    points = f"{_points(xs, low)} {_points(xs[::-1], high[::-1])}"
    return f'<polygon fill="{colour}" fill-opacity="0.15" stroke="none" points="{points}"/>'


def _points(xs: Iterable[float], ys: Iterable[float]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
