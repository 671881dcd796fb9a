"""Beside: a personal model that each client keeps beside the shared one and that never leaves it [Ditto]."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Beside:
    """Each client trains the shared model w as ever and, with as many steps, a model v of its own [Ditto, Alg. 1].

        v = v - lr (grad l(v) + pull (v - w))     from the v of its last round, or from w in its first

    Weights, attacks and checks concern w alone; what clients are tested on is v. With a `pull` of 0 they are alone.

    >>> Beside(pull=0.5).pull
    0.5
    """

    pull: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.pull < math.inf:
            raise ConfigError(f"pull draws personal models to the shared one, 0 or more and finite; got {self.pull}")
