"""Cells of tables: numbers, and effects with interval and p, as texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedmerit.study.verdicts import BASELINE

UNKNOWN = "-"


def effect_cells(line: Mapping[str, Any], digits: int, sign: int = 1) -> tuple[str, str, str, str]:
    """The cells difference, interval, p and verdict; `sign` -1 turns rounds needed into rounds saved."""
    if line["verdict"] == BASELINE:
        return "", "", "", BASELINE
    difference = number_text(sign * line["difference"], digits, "+")
    if math.isnan(line["low"]):
        return difference, "", "", line["verdict"]
    low, high = (number_text(end, digits, "+") for end in sorted((sign * line["low"], sign * line["high"])))
    return difference, f"[{low}, {high}]", f"{line['p']:.3g} ({line['p_holm']:.3g})", line["verdict"]


def number_text(value: float, digits: int, sign: str = "") -> str:
    """A number with so many decimals; a dash where it is not known."""
    return UNKNOWN if math.isnan(value) else f"{value + 0.0:{sign}.{digits}f}"
