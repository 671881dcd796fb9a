"""Scales: the public bounds that criteria are divided by where `normalise` is "scale"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedmerit.errors import ConfigError

Scales: TypeAlias = tuple[tuple[str, float], ...]
"""Pairs of a criterion and the largest of its values that counts."""


def bounds_of(scales: Scales, priority: Sequence[str]) -> tuple[float, ...]:
    """The bounds of these criteria, in their order: their scales, and 1 for degrees.

    >>> bounds_of((("DS", 500.0),), ("CB", "DS"))
    (1.0, 500.0)
    """
    known = dict(scales)
    return tuple(known.get(name, 1.0) for name in priority)


def check_scales(scales: Scales, criteria: Sequence[str], used: bool, counts: Iterable[str]) -> None:
    """Bounds of criteria of the recipe, above 0, where they are `used`; `counts`, which are no degrees, need one."""
    if scales and not used:
        raise ConfigError('scales has no effect without normalise "scale"; set it, or leave out the scales')
    for name, bound in scales:
        if name not in criteria:
            raise ConfigError(f"scales are of criteria of the recipe, {', '.join(criteria)}; got {name}")
        if not 0 < bound < np.inf:
            raise ConfigError(f"a scale is the largest value that counts, above 0; got {bound} for {name}")
    unscaled = [name for name in counts if name not in dict(scales)]
    if used and unscaled:
        raise ConfigError(
            f'normalise "scale" divides by public bounds, and {", ".join(unscaled)} has none; '
            f"set recipe.scales = {{{unscaled[0]} = 500}}"
        )
