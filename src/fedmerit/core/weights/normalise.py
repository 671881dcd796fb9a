"""Normalising: the columns of a table of criteria on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, get_args

import numpy as np

from fedmerit.core.parts import ACCOUNTED, Doc, Words, part
from fedmerit.core.types import Matrix
from fedmerit.errors import ConfigError


@part("normalise", "scale")
class Scale:
    """min(value / bound, 1) with public bounds: no client's value touches another's, and rounds can be compared.

    >>> Scale((("DS", 500.0),)).bounds_of(("CB", "DS"))
    (1.0, 500.0)
    """

    bounds: Annotated[
        tuple[tuple[str, float], ...],
        Doc("the largest value of a criterion that counts, `{DS = 500}`; criteria in 0..1 need none"),
    ]
    gives = ACCOUNTED

    def __post_init__(self) -> None:
        for name, bound in self.bounds:
            if not 0 < bound < np.inf:
                raise ConfigError(f"the scale of {name} must be a number above 0 (got {bound})")

    def bounds_of(self, priority: Sequence[str]) -> tuple[float, ...]:
        """The bounds of these criteria, in their order; 1 for those without one."""
        known = dict(self.bounds)
        return tuple(known.get(name, 1.0) for name in priority)

    def check(self, criteria: Sequence[str], counts: Iterable[str]) -> None:
        """Refuse bounds of criteria that are not there, and criteria without a bound that do not lie in 0..1."""
        known = dict(self.bounds)
        for name in known:
            if name not in criteria:
                raise ConfigError(f"a scale is of a criterion of the recipe, {', '.join(criteria)} (got {name})")
        unscaled = [name for name in counts if name not in known]
        if unscaled:
            raise ConfigError(
                f"normalise = scale needs a bound of {', '.join(unscaled)}; set "
                f'recipe.normalise = {{name = "scale", bounds = {{{unscaled[0]} = 500}}}}'
            )


NormaliseName: TypeAlias = Literal["sum", "max", "minmax", "none"]
NORMALISATIONS: tuple[str, ...] = get_args(NormaliseName)
Normalise: TypeAlias = NormaliseName | Scale
"""How columns come to one scale: `sum` (the papers), `max`, `minmax`, `none`, or by public bounds."""


def scale(bounds: Mapping[str, float]) -> Scale:
    """Divide by public bounds: `normalise=scale({"DS": 500})`.

    >>> scale({"DS": 500}).bounds
    (('DS', 500.0),)
    """
    return Scale(tuple((name, float(bound)) for name, bound in bounds.items()))


def normalise_name(normalise: Normalise) -> str:
    """What tables and ledgers call it."""
    return "scale" if isinstance(normalise, Scale) else normalise


def gives_of(normalise: Normalise) -> Words:
    """`sum`, `max` and `minmax` divide by what other clients have, so that one client changes everybody's weight."""
    return ACCOUNTED if isinstance(normalise, Scale) or normalise == "none" else frozenset()


def normalised(raw: Matrix, how: Normalise, names: Sequence[str] = ()) -> Matrix:
    """Each column on one scale: divided by its sum (the papers), by its maximum, by a public bound, or as it is.

    A column of zeros carries no information: every client gets the same, 1/n by sum and 1 by max. By `minmax` the worst
    has 0 and the best 1; where all are alike, all have 1.

    >>> normalised(np.array([[100.0], [900.0]]), scale({"DS": 500}), ["DS"]).tolist()
    [[0.2], [1.0]]
    """
    if isinstance(how, Scale):
        return np.asarray(np.minimum(raw / np.asarray(how.bounds_of(names), np.float64), 1.0))
    if how == "none":
        return raw.copy()
    if how == "minmax":
        low, span = raw.min(axis=0), np.ptp(raw, axis=0)
        return np.asarray(np.where(span > 0, (raw - low) / np.where(span > 0, span, 1.0), 1.0))
    top = raw.max(axis=0)
    scaled = np.where(top > 0, raw / np.where(top > 0, top, 1.0), 1.0)  # first by max: a sum could overflow
    return scaled if how == "max" else scaled / scaled.sum(axis=0)
