"""Capacities: how much a coalition of criteria counts, the measure behind the Choquet integral.

A coalition is a bit mask: bit i set means criterion i is in it, so the whole set of m criteria is 2**m - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np

from fedmerit.core.types import Matrix, Vector
from fedmerit.errors import ConfigError

TOLERANCE = 1e-9
MOST_CRITERIA = 16  # 2**16 coalitions; beyond that nobody can state a capacity


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much each coalition of criteria counts: a monotone set function with mu(empty) = 0 and mu(all) = 1.

    `values[mask]` is mu of the coalition: bit i of the mask is criterion i. `additive`, `symmetric` and `two_additive`
    make one from fewer numbers.

    >>> Capacity.two_additive([0.5, 0.5], {(0, 1): 0.4}).values
    (0.0, 0.3, 0.3, 1.0)
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        m = self.criteria
        if not 1 <= m <= MOST_CRITERIA or len(self.values) != 2**m:
            raise ConfigError(f"a capacity of m criteria (1..{MOST_CRITERIA}) has 2**m values; got {len(self.values)}")
        if not np.isfinite(self.values).all():
            raise ConfigError("a capacity holds finite numbers only")
        if abs(self.values[0]) > TOLERANCE or abs(self.values[-1] - 1) > TOLERANCE:
            raise ConfigError(
                f"a capacity is 0 for no criterion and 1 for all of them; got {self.values[0]} and {self.values[-1]}"
            )
        for mask, i in _steps(m):
            if self.values[mask | 1 << i] < self.values[mask] - TOLERANCE:
                raise ConfigError(
                    f"a capacity never falls when a criterion joins: coalition {_members(mask)} has "
                    f"{self.values[mask]:g}, with criterion {i} only {self.values[mask | 1 << i]:g}"
                )

    @property
    def criteria(self) -> int:
        """m, the number of criteria."""
        return max(len(self.values), 1).bit_length() - 1

    @classmethod
    def additive(cls, weights: Sequence[float]) -> Capacity:
        """mu(S) = sum of the weights in S; the integral is then the weighted mean."""
        m = len(weights)
        return cls(tuple(float(sum(weights[i] for i in _members(mask))) for mask in range(2**m)))

    @classmethod
    def symmetric(cls, weights: Sequence[float]) -> Capacity:
        """mu(S) = sum of the first |S| weights; the integral is then the OWA with these weights."""
        m = len(weights)
        return cls(tuple(float(sum(weights[: mask.bit_count()])) for mask in range(2**m)))

    @classmethod
    def two_additive(cls, shapley: Sequence[float], interaction: Mapping[tuple[int, int], float]) -> Capacity:
        """From Shapley values phi (sum 1) and pair interactions I: m_i = phi_i - sum_j I_ij / 2, m_ij = I_ij.

        Monotone if and only if phi_i >= sum_j |I_ij| / 2 for every i [Grabisch 1997].
        """
        m = len(shapley)
        pairs = _pairs(m, interaction)
        for i, phi in enumerate(shapley):
            half = sum(abs(value) for pair, value in pairs.items() if i in pair) / 2
            if phi < half - TOLERANCE:
                raise ConfigError(
                    f"criterion {i}: Shapley value {phi:g} is below half of its interactions ({half:g}), so that "
                    "a better value could lower the score; raise the one or lower the others"
                )
        single = [phi - sum(v for pair, v in pairs.items() if i in pair) / 2 for i, phi in enumerate(shapley)]
        values = (_mu(mask, single, pairs) for mask in range(2**m))
        return cls(tuple(0.0 if abs(value) < TOLERANCE else value for value in values))  # no -1e-17 by rounding

    def shapley(self) -> Vector:
        """phi_i: the average gain criterion i brings to a coalition; sums to 1."""
        m = self.criteria
        phi = np.zeros(m)
        for mask, i in _steps(m):
            u = mask.bit_count()
            share = factorial(m - u - 1) * factorial(u) / factorial(m)
            phi[i] += share * (self.values[mask | 1 << i] - self.values[mask])
        return phi

    def interaction(self) -> Matrix:
        """I_ij: > 0 where two criteria gain together, < 0 where they repeat each other."""
        m, mu = self.criteria, self.values
        table = np.zeros((m, m))
        for i, j in combinations(range(m), 2):
            a, b = 1 << i, 1 << j
            for mask in (mask for mask in range(2**m) if not mask & (a | b)):
                u = mask.bit_count()
                share = factorial(m - u - 2) * factorial(u) / factorial(m - 1)
                table[i, j] += share * (mu[mask | a | b] - mu[mask | a] - mu[mask | b] + mu[mask])
            table[j, i] = table[i, j]
        return table


def _steps(m: int) -> list[tuple[int, int]]:
    """Every coalition with every criterion that is not in it."""
    return [(mask, i) for mask in range(2**m) for i in range(m) if not mask >> i & 1]


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _pairs(m: int, interaction: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    pairs: dict[tuple[int, int], float] = {}
    for (i, j), value in interaction.items():
        pair = (min(i, j), max(i, j))
        if not 0 <= pair[0] < pair[1] < m or pair in pairs:
            raise ConfigError(f"an interaction names two criteria of 0..{m - 1}, each pair once; got {(i, j)}")
        pairs[pair] = float(value)
    return pairs


def _mu(mask: int, single: Sequence[float], pairs: Mapping[tuple[int, int], float]) -> float:
    inside = set(_members(mask))
    return float(sum(single[i] for i in inside) + sum(v for pair, v in pairs.items() if inside.issuperset(pair)))
