"""Grids of hyperparameters: keys of [train] and [recipe] with values to try, their points and edges."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any, TypeAlias

from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, flatten, make_config, set_values
from fedmerit.config.sections import parse_value
from fedmerit.errors import ConfigError, UserError

Grid: TypeAlias = Mapping[str, Sequence[Any]]
Point: TypeAlias = Mapping[str, Any]
"""One value per key of a grid."""

SECTIONS = ("train", "recipe")
"""The sections that a grid can set, the same as for a row of a study."""

MOST_POINTS = 1000
NUDGE = 1e-6
"""The relative step with which `edges` tests whether a value beyond the end of a grid is valid."""


def make_grid(values: Any) -> dict[str, tuple[Any, ...]]:
    """Check the keys and values of a grid; nested tables become keys with dots.

    >>> make_grid({"train": {"lr": [0.01, 0.1]}})
    {'train.lr': (0.01, 0.1)}
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"a grid must be a table, such as {{'train.lr' = [0.01, 0.1]}} (got {values!r})")
    grid = {key: _check_values(key, listed) for key, listed in flatten(values).items()}
    for key in grid:
        _check_key(key)
    count = math.prod(map(len, grid.values()))
    if not grid or count < 2:
        raise ConfigError(
            "a grid must have at least two points, such as train.lr=0.01,0.1; "
            + (f"got one: {point_name(points(grid)[0])}; set it without a grid" if grid else "got no key")
        )
    if count > MOST_POINTS:
        raise ConfigError(f"a grid must have at most {MOST_POINTS:,} points (got {count:,}); give fewer values")
    return grid


def parse_grid(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Parse the grid of a command line: `KEY=VALUE,VALUE,...` per key.

    >>> parse_grid(["train.lr=0.01,0.1", "recipe.normalise=sum,max"])
    {'train.lr': (0.01, 0.1), 'recipe.normalise': ('sum', 'max')}
    """
    grid: dict[str, Any] = {}
    for text in texts:
        key, equals, listed = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--grid needs KEY=VALUE,VALUE,..., for example train.lr=0.01,0.1 (got {text!r})")
        if key in grid:
            raise ConfigError(f"--grid {key} was given twice; give all values at once: {key}=VALUE,VALUE,...")
        grid[key] = _parse_values(listed)
    return make_grid(grid)


def points(grid: Grid) -> list[dict[str, Any]]:
    """List all points of a grid; the last key changes fastest.

    >>> points({"train.lr": [1, 2], "train.epochs": [3]})
    [{'train.lr': 1, 'train.epochs': 3}, {'train.lr': 2, 'train.epochs': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def point_name(point: Point) -> str:
    """The name of a point in tables: keys are shortened to their last part if that is unique.

    >>> point_name({"train.lr": 0.1, "recipe.server.optimizer.momentum": 0.9})
    'lr=0.1 momentum=0.9'
    """
    short = {key: key.rpartition(".")[2] for key in point}
    names = {key: last if [*short.values()].count(last) == 1 else key for key, last in short.items()}
    return " ".join(f"{names[key]}={value_text(value)}" for key, value in point.items())


def value_text(value: Any) -> str:
    """Format a value: texts without quotes, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def point_values(base: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Make [train] and [recipe] of a point: the base's settings with the point's values."""
    values = deepcopy(dict(base))
    set_values(values, [*point.items()])
    return {section: values[section] for section in SECTIONS if section in values}


def config_of(base: Mapping[str, Any], point: Point, seed: int) -> Config:
    """Make the configuration of a point with a seed."""
    values = {**base, **point_values(base, point)}
    return make_config(values | {"run": values.get("run", {}) | {"seed": seed}})


def edges(base: Mapping[str, Any], grid: Grid, point: Point) -> dict[str, str]:
    """The keys whose value in a point is an edge of their grid, `smallest` or `largest`.

    It is not an edge if no valid value lies beyond it (a momentum of 0, one epoch), if values are names, or if there is
    only one value.
    """
    return {
        key: end
        for key, values in grid.items()
        if (end := _end(point[key], values)) and _more_beyond(base, point, key, 1 if end == "largest" else -1)
    }


def _end(value: Any, values: Sequence[Any]) -> str:
    if len(values) < 2 or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        return ""
    return "smallest" if value == min(values) else "largest" if value == max(values) else ""


def _more_beyond(base: Mapping[str, Any], point: Point, key: str, sign: int) -> bool:
    """Whether a value beyond the point's value is valid: by a step of 1, or by a tiny relative step."""
    for step in filter(None, (1, NUDGE * abs(point[key]))):
        with suppress(UserError):
            recipe_of(config_of(base, {**point, key: point[key] + sign * step}, 0))
            return True
    return False


def _check_key(key: str) -> None:
    section = key.partition(".")[0]
    if section in SECTIONS:
        return
    if key == "run.seed":
        raise ConfigError(
            "run.seed cannot be tuned, because the best seed is chance; all points use the seeds of [tune]"
        )
    raise ConfigError(
        f"a grid can only set keys of {' and '.join(f'[{name}]' for name in SECTIONS)}, such as train.lr "
        f"(got {key!r}): points are compared in pairs, and share data, rounds and selected clients"
    )


def _check_values(key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise ConfigError(f"the grid of {key} must be a list of values, such as [0.01, 0.1] (got {values!r})")
    if not values:
        raise ConfigError(f"the grid of {key} must have at least one value (got none)")
    texts = [value_text(value) for value in values]
    if repeated := sorted({text for text in texts if texts.count(text) > 1}):
        raise ConfigError(f"the values of a grid must differ ({key} has {repeated[0]} more than once); remove one")
    return tuple(values)


def _parse_values(text: str) -> list[Any]:
    """Parse TOML values; other values are texts, so that names need no quotes."""
    values = parse_value(f"[{text}]")
    return values if isinstance(values, list) else [parse_value(part.strip()) for part in text.split(",")]
