"""The device of a client: how much of its battery is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedmerit.core.facts import ENERGY

SUPPLIES = Path("/sys/class/power_supply")
"""Where Linux tells of batteries."""


def energy_left(own: Mapping[str, float | str], supplies: Path = SUPPLIES) -> float:
    """Share of the battery that is left: what [facts] simulates, else the emptiest battery; 1 on mains power.

    >>> energy_left({"energy": 0.4})
    0.4
    """
    if ENERGY in own:
        return float(own[ENERGY])
    levels = []
    for supply in sorted(supplies.glob("*/capacity")):
        try:
            levels.append(int(supply.read_text()) / 100)
        except (OSError, ValueError):
            continue  # a supply that does not say
    return min((min(max(level, 0.0), 1.0) for level in levels), default=1.0)
