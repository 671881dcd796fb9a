"""Computation: how fast a client is, by the clock, by its word, or by the epochs that it was given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmerit.core.facts import CLOCK, EPOCHS, LARGEST, SECONDS
from fedmerit.core.history import History
from fedmerit.core.types import Cohort, Family, Vector

SHORTEST = 1e-9
"""Seconds; a clock may stand still between two looks at it."""


@dataclass(frozen=True, slots=True)
class Computation:
    """xi_i = slowest time of the group / own time, so 1 for the slowest [M2F, eq. 10].

    `time` is the fact to go by: the server's `clock` around the exchange, the `seconds` that clients report, or
    `epochs` given: more epochs in the same time, 1 / epochs for each.
    """

    time: str = CLOCK
    name: str = "Computation"
    family: Family = Family.TRUST
    degree: bool = False
    about: str = "speed: slowest time of the group / own time, by the server's clock"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The one fact that it goes by."""
        return (self.time,)

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Quicker clients get more."""
        fact = cohort.facts[self.time]
        taken = 1.0 / fact if self.time == EPOCHS else np.maximum(fact, SHORTEST)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(taken.max() / taken, LARGEST), np.float64)


COMPUTATION = Computation()
REPORTED_COMPUTATION = Computation(
    SECONDS, "ReportedComputation", about="reported speed: slowest time of the group / own time, as clients report it"
)
SIMULATED_COMPUTATION = Computation(
    EPOCHS, "SimulatedComputation", about="simulated speed: own epochs / fewest epochs of the group, see [run.schedule]"
)
