"""How long a round waits for its clients; answers after that are dropped."""

from dataclasses import dataclass
from math import ceil

ROUNDING = 1e-9
"""Tolerance for products such as 0.7 * 10, which is slightly more than 7."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for all clients of a round, but after `seconds` only for this minimum fraction of them.

    >>> wait = Wait(min_fraction=0.8, seconds=60)
    >>> wait.is_over(8, 10, 59), wait.is_over(8, 10, 60), wait.is_over(7, 10, 600)
    (False, True, False)
    """

    min_fraction: float
    seconds: float

    def is_over(self, answered: int, clients: int, seconds: float) -> bool:
        """Whether a round continues without the missing answers."""
        return seconds >= self.seconds and answered >= max(1, ceil(self.min_fraction * clients - ROUNDING))
