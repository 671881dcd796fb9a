"""Hours: at which hour of the day a round begins, in a simulation or by the server's clock."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from fedmerit.core.collect.schedules import deal_hours, is_within

log = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """Round 1 begins at the hour `start`, each other one so many minutes after the one before.

    >>> SimulatedClock(start=23.0, minutes=90.0)(2)
    0.5
    """

    start: float
    minutes: float

    def __call__(self, index: int) -> float:
        """The hour, 0..24."""
        return (self.start + (index - 1) * self.minutes / 60) % 24


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The hour by this machine's clock, UTC; where no client has such an hour, that is waited for.

    Nodes' clocks are not asked: a node that says another hour would be asked at another time.
    """

    hours: tuple[tuple[float, float, int], ...]
    patience: float = 30.0

    def __call__(self, index: int) -> float:
        """The hour, 0..24, at which somebody is there."""
        told = False
        while not any(is_within(now(), span) for span in deal_hours(self.hours)):
            if not told:
                log.info("fedmerit: round %d waits: it is no client's hour", index)
            told = True
            time.sleep(self.patience)
        return now()


def now() -> float:
    """The hour of the day, UTC."""
    at = datetime.now(UTC)
    return at.hour + at.minute / 60 + at.second / 3600
