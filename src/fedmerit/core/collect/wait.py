"""How long a round waits for its clients; answers after that are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

ROUNDING = 1e-9
"""Tolerance for products such as 0.7 * 10, which is slightly more than 7."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for all clients that a round needs, but after `seconds` only for this minimum fraction of them.

    A round needs all clients that it asked. With `overselect` it asked that many times as many as it needs
    [Bonawitz 2019], and continues as soon as the needed number has answered.

    >>> wait = Wait(min_fraction=0.8, seconds=60)
    >>> wait.is_over(8, 10, 59), wait.is_over(8, 10, 60), wait.is_over(7, 10, 600)
    (False, True, False)
    >>> Wait(min_fraction=0.8, seconds=60, overselect=1.3).is_over(10, 13, 5)
    True
    """

    min_fraction: float
    seconds: float
    overselect: float = 1.0

    def needed(self, clients: int) -> int:
        """Number of answers that end a round at once: all, or with over-selection the number that it needs."""
        return max(1, floor(clients / self.overselect + ROUNDING))

    def enough(self, clients: int) -> int:
        """Number of answers that suffice after the deadline: at least one."""
        return max(1, ceil(self.min_fraction * self.needed(clients) - ROUNDING))

    def is_over(self, answered: int, clients: int, seconds: float) -> bool:
        """Whether a round continues without the missing answers."""
        whole = self.overselect > 1 and answered >= self.needed(clients)
        return whole or (seconds >= self.seconds and answered >= self.enough(clients))
