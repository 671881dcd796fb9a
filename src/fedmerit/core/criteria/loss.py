"""Criteria by the loss of the received model on a client's rows."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import LARGEST, LOSS
from fedmerit.core.parts import ACCOUNTED, Doc, Words, part
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Family, Vector


@part("criterion", "LossPower")
class LossPower:
    """F_k ** q, F the loss of the received model on the client's rows: q-FFL's weights [q-FFL]; q = 0: all alike."""

    q: Annotated[float, Interval(ge=0), Doc("power of the loss; 0: all clients alike")] = 1.0

    name: ClassVar[str] = "LossPower"
    family: ClassVar[Family] = Family.MODEL
    required_facts: ClassVar[tuple[str, ...]] = (LOSS,)
    degree: ClassVar[bool] = False
    about: ClassVar[str] = (
        "loss: of the received model on the client's rows, to a power; higher loss counts more (q-FFL)"
    )
    gives: ClassVar[Words] = ACCOUNTED

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """Larger losses, larger values."""
        with np.errstate(over="ignore"):
            return np.minimum(cohort.facts[LOSS] ** self.q, LARGEST)


@part("criterion", "Agnostic")
class Agnostic:
    """exp(eta * sum of the client's losses so far): the weight of the worst client rises round by round [AFL]."""

    eta: Annotated[float, Interval(ge=0), Doc("how fast the weights of clients with high loss rise")] = 0.1

    name: ClassVar[str] = "Agnostic"
    family: ClassVar[Family] = Family.MODEL
    required_facts: ClassVar[tuple[str, ...]] = (LOSS,)
    degree: ClassVar[bool] = True
    about: ClassVar[str] = (
        "losses so far: exp of their sum; the worst client's weight rises round by round (agnostic FL)"
    )

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """In proportion to the largest of the round, which keeps it finite."""
        with np.errstate(over="ignore"):
            so_far = np.array([history.losses.get(client, 0.0) for client in cohort.ids]) + cohort.facts[LOSS]
            so_far = np.minimum(so_far, LARGEST)
            return np.asarray(np.exp(self.eta * (so_far - so_far.max())))
