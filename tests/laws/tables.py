"""Random tables, weights and operators for the laws."""

from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedmerit import OWA, Choquet, Score, WeightedMean
from fedmerit.core.parts import PARTS, load_parts, settings
from fedmerit.core.weights.scores import Lexicographic

load_parts()
PLAIN: list[Score] = [
    kind() for kind in PARTS["score"].values() if not any(one.required for one in settings(kind).values())
]
"""The registered scores that need no settings: a new one is tried by the laws without another line."""

DEGREE = st.floats(0, 1)
COUNT = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))
EXTREME = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.sampled_from([5e-324, 1e-300, 1e300, 1.7e308]))
NORMALISE = st.sampled_from(["sum", "max"])


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
def choquets(draw: st.DrawFn, m: int) -> Choquet:
    """Shapley values and interactions with phi_i >= half of the absolute interactions, up to equality."""
    pairs = list(combinations(range(m), 2))
    values = draw(st.lists(st.integers(-9, 9), min_size=len(pairs), max_size=len(pairs)))
    own = draw(st.lists(st.integers(0, 20), min_size=m, max_size=m).filter(any))
    phi = [own[i] + sum(abs(v) for pair, v in zip(pairs, values, strict=True) if i in pair) / 2 for i in range(m)]
    interaction = tuple((i, j, value / sum(phi)) for (i, j), value in zip(pairs, values, strict=True))
    return Choquet(tuple(value / sum(phi) for value in phi), interaction)


@st.composite
def operators(draw: st.DrawFn, m: int, continuous: bool = False) -> Score:
    """Any operator for m criteria.

    With `continuous` all but ranks: where two clients differ by a rounding error they score as if they
    differed by much, so a law that compares two roundings of one table does not hold.
    """
    choices = [
        st.sampled_from([one for one in PLAIN if not (continuous and isinstance(one, Lexicographic))]),
        shares(m).map(WeightedMean),
        shares(m).map(OWA),
        choquets(m),
    ]
    return draw(st.one_of(choices))
