"""A tuning: what is tried on which seeds, by what measure, and the rule by which points drop out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
import tomli_w
from pydantic import BeforeValidator, Field, field_validator, model_validator

from fedmerit.config.schema import Config, Section, make_config
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.study.grid import check_points, config_of, edges, make_grid, point_name, points
from fedmerit.study.metrics import GAPS, Better, better
from fedmerit.study.statistics import DIGITS

ROUNDS = "rounds"
MEASURES = ("accuracy", "best", "p10", "p50", "p90", "worst", ROUNDS)
"""What a tuning can go by; audits of the run come on top, as `audit NAME` or `gap NAME`."""

MOST_SEEDS = 10_000
FIRST_SEED = 101
"""Tuning seeds begin here, far from 1, 2, ..., on which studies report."""

SHARE = 0.5
FEWEST_POINTS = 2
"""So many points stay to the last, so that the best has one to be compared with on all seeds."""


def seed_list(first: int) -> BeforeValidator:
    """Accept a number of seeds where a list of them is expected: 5 stands for first..first + 4."""

    def listed(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if value > MOST_SEEDS:
            raise ValueError(f"there are at most {MOST_SEEDS:,} seeds")
        return tuple(range(first, first + value))

    return BeforeValidator(listed)


Seed: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Target: TypeAlias = Annotated[float, Field(ge=0, le=1, strict=True)]
Share: TypeAlias = Annotated[float, Field(gt=0, le=1, strict=True)]


class TuneConfig(Section):
    """[tune]: on which seeds, and by what measure, rows with a grid are tuned."""

    seeds: Annotated[tuple[Seed, ...], seed_list(FIRST_SEED)] = Field(
        (101, 102, 103, 104, 105), description="the tuning seeds, or how many: 5 stands for 101..105"
    )
    first: Annotated[int, Field(ge=1, strict=True)] = Field(
        1, description="seeds on which every point is tried; as many as there are seeds: no point drops out before"
    )
    by: str = Field("", description="what the best point is best in; default: rounds where a target is set")
    target: Target | None = Field(None, description="target accuracy, for rounds")
    share: Share | None = Field(None, description="share of the devices that have to be above the target; default: 0.5")

    @field_validator("by")
    @classmethod
    def _check_by(cls, value: str) -> str:
        if value and value not in MEASURES and not value.startswith(("audit ", "gap ")):
            raise UnknownName("measure to tune by", value, (*MEASURES, "audit NAME", "gap NAME"))
        return value

    @model_validator(mode="after")
    def _check_tuning(self) -> Self:
        if not self.seeds:
            raise ConfigError("tuning has at least one seed; set seeds = 5, or seeds = [101, 102]")
        if repeated := sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1}):
            raise ConfigError(f"tuning seeds must differ from each other; got more than once: {repeated[0]}")
        if self.first > len(self.seeds):
            raise ConfigError(f"first is at most the number of tuning seeds, {len(self.seeds)}; got {self.first}")
        if self.measure == ROUNDS and self.target is None:
            raise ConfigError("tuning by rounds needs a target accuracy, such as target = 0.75; got none")
        if self.measure != ROUNDS and (self.target, self.share) != (None, None):
            raise ConfigError(
                f"target and share have no effect in tuning by {self.measure}; leave by away, or set rounds"
            )
        return self

    @property
    def measure(self) -> str:
        """What the best point is best in."""
        return self.by or (ROUNDS if self.target is not None else "accuracy")

    @property
    def devices(self) -> float:
        """The share of the devices that have to be above the target."""
        return SHARE if self.share is None else self.share

    @property
    def better(self) -> Better:
        """Which way the measure is better."""
        return "lower" if self.measure == ROUNDS else better(self.measure)

    @property
    def about(self) -> str:
        """The measure in words."""
        if self.target is None:
            return self.measure
        return f"rounds until {self.devices:.0%} of the devices are above {self.target:.0%}"


class Tuning(TuneConfig):
    """A grid over a configuration: the points x the tuning seeds, of which successive halving runs a part.

    `name` is the row of the study that is tuned, "" for a tuning of its own.
    """

    name: str = ""
    base: dict[str, Any] = Field({}, description="the configuration that the points share")
    grid: Annotated[dict[str, tuple[Any, ...]], BeforeValidator(make_grid)] = Field(
        description="keys of [train] and [recipe], each with the values to try"
    )

    @model_validator(mode="after")
    def _check_grid(self) -> Self:
        config = make_config(self.base)
        check_points(self.base, self.grid)
        kind, _, objective = self.measure.partition(" ")
        if kind in ("audit", "gap") and objective not in config.run.audit:
            raise ConfigError(
                f"tuning by {self.measure} needs run.audit = [{objective!r}]; got {list(config.run.audit)}"
            )
        if objective and (kind == "gap") != (objective.partition(":")[0] in GAPS):
            other = f"audit {objective}" if kind == "gap" else f"gap {objective}"
            raise ConfigError(f"runs write {objective} down as {other!r}; got {self.measure!r}")
        return self

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """All points of the grid, in its order."""
        return points(self.grid)

    def label(self, point: int) -> str:
        """How tables and progress call a point."""
        return f"{self.name}: {point_name(self.points[point])}" if self.name else point_name(self.points[point])

    def config(self, point: int, seed: int | None = None) -> Config:
        """The configuration of a point, with the base's seed or another."""
        return config_of(self.base, self.points[point], seed)

    def edges(self, point: int) -> dict[str, str]:
        """The keys whose value in a point is the smallest or largest of their grid."""
        return edges(self.base, self.grid, self.points[point])

    @property
    def heat_sizes(self) -> list[tuple[int, int]]:
        """Points and seeds of each heat.

        >>> Tuning(seeds=5, grid={"train.lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}).heat_sizes
        [(6, 1), (3, 2), (2, 4), (2, 5)]
        """
        number, heat_sizes = len(self.points), list[tuple[int, int]]()
        for seeds in _doubled(self.first, len(self.seeds)):
            heat_sizes.append((number, seeds))
            number = _half(number)
        return heat_sizes

    @property
    def runs(self) -> int:
        """How many runs there are in all."""
        seeds = [0, *(seeds for _, seeds in self.heat_sizes)]
        return sum(points * (after - before) for (points, after), before in zip(self.heat_sizes, seeds, strict=False))


def _doubled(first: int, most: int) -> list[int]:
    numbers = [first]
    while numbers[-1] < most:
        numbers.append(min(2 * numbers[-1], most))
    return numbers


def _half(number: int) -> int:
    """The better half, rounded up, and never fewer than two."""
    return max(FEWEST_POINTS, math.ceil(number / 2))


class Outcome(NamedTuple):
    """What a run of a tuning came to: the measure, the final accuracy, which breaks ties, and if it missed a target."""

    value: float
    accuracy: float
    missed: bool = False


Outcomes: TypeAlias = Mapping[tuple[int, int], Outcome]
"""By point and seed."""


@dataclass(frozen=True, slots=True)
class Heat:
    """A stage of the halving: these points were compared on these seeds; best first once all runs are there."""

    points: tuple[int, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Halving:
    """The heats so far, the runs (point, seed) that the last of them lacks, and the best point once they lack none."""

    heats: tuple[Heat, ...]
    missing: tuple[tuple[int, int], ...]
    best: int | None

    @property
    def asked(self) -> list[tuple[int, int]]:
        """All runs (point, seed) that the heats so far ask for."""
        return list(dict.fromkeys((point, seed) for heat in self.heats for seed in heat.seeds for point in heat.points))


def halve(tuning: Tuning, outcomes: Outcomes) -> Halving:
    """Successive halving over seeds [Jamieson and Talwalkar 2016], as far as the outcomes go.

    All points run on the first `first` seeds. The better half (rounded up, at least two points) goes on with twice the
    seeds, until the last heat has all of them; its best point is the best. Points are ordered by the mean of the
    measure over the heat's seeds; ties by the mean of the final accuracy, then by their place in the grid. A measure
    that is not known (NaN) is the worst. The same outcomes give the same halving, so a stopped tuning goes on where it
    was.
    """
    alive, heats = tuple(range(len(tuning.points))), list[Heat]()
    for number, seeds in tuning.heat_sizes:
        heat = Heat(alive[:number], tuning.seeds[:seeds])
        missing = tuple((p, seed) for seed in heat.seeds for p in sorted(heat.points) if (p, seed) not in outcomes)
        if missing:
            return Halving((*heats, heat), missing, None)
        alive = tuple(_best_first(heat, outcomes, tuning.better))
        heats.append(Heat(alive, heat.seeds))
    return Halving(tuple(heats), (), alive[0])


def _best_first(heat: Heat, outcomes: Outcomes, better: Better) -> Sequence[int]:
    def key(point: int) -> tuple[float, float, int]:
        value, accuracy, _ = np.mean([outcomes[point, seed] for seed in heat.seeds], axis=0).round(DIGITS)
        sign = -1 if better == "higher" else 1
        return _last_if_unknown(sign * value), _last_if_unknown(-accuracy), point

    return sorted(heat.points, key=key)


def _last_if_unknown(value: float) -> float:
    return math.inf if math.isnan(value) else float(value)


def dump_tuning(tuning: Tuning) -> str:
    """The tuning as TOML: the keys that were given."""
    return tomli_w.dumps(tuning.model_dump(mode="json", exclude_unset=True, exclude_none=True))
