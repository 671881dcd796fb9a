"""Random tables, weights, capacities and operators for the laws."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import OWA, Choquet, Score, WeightedMean
from fedmerit.core.parts import PARTS, load_parts, settings
from fedmerit.core.weights.capacity import Capacity
from fedmerit.core.weights.scores import AS_MANY_AS_POSSIBLE, AT_LEAST_HALF, MOST, Power, QuantifierOWA
from fedmerit.core.weights.topsis import Topsis

load_parts()
PLAIN: list[Score] = [
    kind() for kind in PARTS["score"].values() if not any(one.required for one in settings(kind).values())
]
"""The registered scores that need no settings: a new one is tried by the laws without another line."""

DEGREE = st.floats(0, 1)
COUNT = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))
EXTREME = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.sampled_from([5e-324, 1e-300, 1e300, 1.7e308]))
NORMALISE = st.sampled_from(["sum", "max"])
QUANTIFIER = st.one_of(st.sampled_from([MOST, AT_LEAST_HALF, AS_MANY_AS_POSSIBLE]), st.floats(0.1, 10).map(Power))


def names(table: np.ndarray) -> list[str]:
    return [f"c{i}" for i in range(table.shape[1])]


def rows(length: int, values: st.SearchStrategy[float] = DEGREE) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, length, elements=values)


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[float] = DEGREE, least: int = 1, columns: int = 1) -> np.ndarray:
    shape = draw(st.tuples(st.integers(least, 6), st.integers(columns, 4)))
    return draw(arrays(np.float64, shape, elements=values))


@st.composite
def shares(draw: st.DrawFn, length: int) -> tuple[float, ...]:
    """`length` numbers >= 0 that sum to 1."""
    parts = np.array(draw(st.lists(st.integers(0, 100), min_size=length, max_size=length).filter(any)))
    return tuple((parts / parts.sum()).tolist())


@st.composite
def two_additive(draw: st.DrawFn, m: int, slack: int = 0) -> tuple[tuple[float, ...], dict[tuple[int, int], float]]:
    """Shapley values and interactions with phi_i >= half of the absolute interactions, up to equality if slack is 0."""
    pairs = [(i, j) for i in range(m) for j in range(i + 1, m)]
    values = dict(zip(pairs, draw(st.lists(st.integers(-9, 9), min_size=len(pairs), max_size=len(pairs))), strict=True))
    alone = draw(st.lists(st.integers(slack, 20), min_size=m, max_size=m).filter(any))
    phi = [alone[i] + sum(abs(v) for pair, v in values.items() if i in pair) / 2 for i in range(m)]
    total = sum(phi)
    return tuple(value / total for value in phi), {pair: value / total for pair, value in values.items()}


@st.composite
def capacities(draw: st.DrawFn, m: int) -> Capacity:
    """Any monotone capacity: every coalition gets the best of its parts and something more."""
    values = [0.0] * 2**m
    for mask in range(1, 2**m):
        inside = [values[mask ^ 1 << i] for i in range(m) if mask >> i & 1]
        values[mask] = max(inside) + draw(st.integers(0, 10))
    top = values[-1]
    return Capacity(tuple(v / top for v in values)) if top else Capacity((*values[:-1], 1.0))


@st.composite
def operators(draw: st.DrawFn, m: int, continuous: bool = False) -> Score:
    """Any operator for m criteria.

    With `continuous` all but TOPSIS. It scores 0 and 1 where two clients differ by a rounding error and 1 and 1 where
    they do not, so a law that compares two roundings of one table does not hold for it.
    """
    choices = [
        st.sampled_from([one for one in PLAIN if not (continuous and isinstance(one, Topsis))]),
        shares(m).map(WeightedMean),
        shares(m).map(OWA),
        st.builds(QuantifierOWA, QUANTIFIER),
        st.builds(QuantifierOWA, QUANTIFIER, shares(m)),
        capacities(m).map(Choquet),
    ]
    return draw(st.one_of(choices))
