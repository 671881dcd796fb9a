"""Releases: what a private run reveals, booked before anybody sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Release:
    """One release of noisy numbers, to be booked before anybody sees them.

    kind        `round`: a Poisson-sampled Gaussian mechanism
    """

    round: int
    kind: Literal["round"]
    multiplier: float
    fraction: float = 1.0


def no_account(release: Release) -> None:
    """Book nothing: the host of a test, or of a run without an account."""
