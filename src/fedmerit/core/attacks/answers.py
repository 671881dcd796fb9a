"""Attacks on one's own answer: the client changes its update or its claims, and knows nothing of other clients."""

from dataclasses import dataclass

import numpy as np

from fedmerit.core.attacks.attack import Facts
from fedmerit.core.facts import find_fact
from fedmerit.core.types import Model


@dataclass(frozen=True, slots=True)
class ScaledUpdate:
    """Scaled update u -> strength * u, the model replacement of Bagdasaryan et al. 2020.

    >>> from fedmerit.core.seeds import generator
    >>> ScaledUpdate(10).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "scale"))[0].tolist()
    [10.0, -20.0]
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Multiply the update."""
        return update * np.float32(self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Sign flip u -> -strength * u: gradient ascent instead of descent [Li et al. 2019, RSA].

    >>> from fedmerit.core.seeds import generator
    >>> SignFlip(1).answer(np.array([1, -2], np.float32), {}, 2, generator(0, "flip"))[0].tolist()
    [-1.0, 2.0]
    """

    strength: float = 1.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Negate the update."""
        return update * np.float32(-self.strength), dict(facts)


@dataclass(frozen=True, slots=True)
class Sleeper:
    """Sleeper: honest until `from_round`, by default 20, then -strength * u, against what its record earned it.

    Ours. `Coalition.from_round` is the first bad round.

    >>> from fedmerit.core.seeds import generator
    >>> Sleeper().answer(np.array([1, -2], np.float32), {}, 2, generator(0, "sleep"))[0].tolist()
    [-2.0, 4.0]
    """

    strength: float = 2.0
    answer = SignFlip.answer


@dataclass(frozen=True, slots=True)
class Gauss:
    """Gaussian noise in place of u with expected norm `strength` |u|: entries N(0, (strength |u|)^2 / d).

    After the Gaussian attack of Blanchard et al. 2017, whose deviation (200) here scales with the norm of the update.
    """

    strength: float = 10.0

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Replace the update with noise."""
        deviation = self.strength * float(np.linalg.norm(update)) / np.sqrt(len(update))
        return random.standard_normal(len(update), dtype=np.float32) * np.float32(deviation), dict(facts)


@dataclass(frozen=True, slots=True)
class FreeRider:
    """Zero update with honest claims: the client returns the model it got [Lin et al. 2019; Fraboni et al. 2021]."""

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Replace the update with zeros."""
        return np.zeros_like(update), dict(facts)


@dataclass(frozen=True, slots=True)
class Liar:
    """Honest update with false claims: each fact named here is multiplied by its factor.

    The claim stays within the public limits, because one outside would only be dropped: the range of the fact, and for
    `labels` the classes of the task. A fact of 0 is claimed as the factor itself. Facts that the recipe does not use
    are not sent, so the client does not lie about them.

    >>> from fedmerit.core.seeds import generator
    >>> liar = Liar({"samples": 100, "balance": 3, "labels": 50})
    >>> liar.answer(np.zeros(1, np.float32), {"samples": 30, "balance": 0, "labels": 2}, 10, generator(0, "lie"))[1]
    {'samples': 3000, 'balance': 1, 'labels': 10}
    """

    factors: Facts

    def answer(
        self, update: Model, facts: Facts, classes: int, random: np.random.Generator
    ) -> tuple[Model, dict[str, float]]:
        """Keep the update, change the facts."""
        return update, {name: self._claim(name, value, classes) for name, value in facts.items()}

    def _claim(self, name: str, value: float, classes: int) -> float:
        factor = self.factors.get(name)
        if factor is None:
            return value
        fact = find_fact(name)
        limits = [limit for limit in (fact.high, classes if name == "labels" else None) if limit is not None]
        return max(min([value * factor or factor, *limits]), fact.low)
