"""Plan of a study: TOML in, frozen values out; rows that could not be compared in pairs are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import tomli_w
from pydantic import BeforeValidator, Field, field_validator, model_validator

from fedmerit.config.recipes import make_recipe
from fedmerit.config.schema import Config, Section, make_config, read_toml, validate
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.errors import ConfigError, UnknownName, UserError

MOST_SEEDS = 10_000
SHARED = ("task", "run")
"""What all rows have in common: data, partition, model, seeds, rounds and the draw of clients."""


def _counted(value: Any) -> Any:
    """Accept a number of seeds where a list of them is expected: 5 stands for 1..5."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if value > MOST_SEEDS:
        raise ValueError(f"a study has at most {MOST_SEEDS:,} seeds")
    return tuple(range(1, value + 1))


Seed: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Target: TypeAlias = Annotated[float, Field(ge=0, le=1, strict=True)]
Share: TypeAlias = Annotated[float, Field(gt=0, le=1, strict=True)]
Title: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


class Row(Section):
    """[[row]]: one line of the table: what is done differently, and with nothing else changed."""

    name: Title = Field(description="how tables call the row")
    recipe: dict[str, Any] | None = Field(None, description="a [recipe] in place of the base's; default: the base's")
    train: dict[str, Any] = Field({}, description="keys of [train] that differ from the base's")

    @model_validator(mode="before")
    @classmethod
    def _shares_the_rest(cls, values: Any) -> Any:
        found = [key for key in SHARED if isinstance(values, Mapping) and key in values]
        if found:
            raise ConfigError(
                f"row {values.get('name', '')!r} sets {' and '.join(found)}: rows are compared in pairs and share "
                "data, seeds, rounds and the draw of clients; a row sets recipe and train, the rest stands in [base]. "
                "Rows on other data are another study"
            )
        return values

    @field_validator("name")
    @classmethod
    def _makes_a_file_name(cls, value: str) -> str:
        if not _slug(value):
            raise ValueError("a row's name has at least one letter or digit")
        return value

    @property
    def slug(self) -> str:
        """The name as a part of file names: `LD > DS` is ld-ds."""
        return _slug(self.name)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name.lower()).strip("-.")


class Plan(Section):
    """A study: rows x seeds, each row with the same data, first model and draw of clients for the same seed."""

    name: Title = Field("study", description="how reports call the study")
    seeds: Annotated[tuple[Seed, ...], BeforeValidator(_counted)] = Field(
        description="the seeds of every row, or how many: 5 stands for 1..5"
    )
    baseline: str = Field("", description="the row that others are compared with; default: the first")
    targets: tuple[Target, ...] = Field(TARGETS, description="target accuracies for rounds to target")
    shares: tuple[Share, ...] = Field(SHARES, description="shares of the devices that have to be above a target")
    base: dict[str, Any] = Field(
        {}, description="what all rows share, as in a configuration: [base.task] ..., or the path of one"
    )
    rows: tuple[Row, ...] = Field(alias="row", description="the rows, see [[row]]")

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        """Every row has a valid configuration, a name of its own, and is compared with a row that is there."""
        if not self.rows:
            raise ConfigError("a study has at least one [[row]]; got none")
        if not self.seeds:
            raise ConfigError("a study has at least one seed; set seeds = 5, or seeds = [1, 2, 3]")
        _once("seeds", self.seeds)
        _once("row names", [row.name for row in self.rows])
        _once("row names, as parts of file names,", [row.slug for row in self.rows])
        if self.against not in [row.name for row in self.rows]:
            raise UnknownName("row as baseline", self.against, [row.name for row in self.rows])
        for row in self.rows:
            _check(self, row)
        return self

    @property
    def against(self) -> str:
        """The name of the baseline."""
        return self.baseline or self.rows[0].name

    def config(self, row: Row, seed: int) -> Config:
        """The run of a row with a seed, completely; [base.run] may name a seed, which does not count."""
        values = {key: dict(part) if isinstance(part, Mapping) else part for key, part in self.base.items()}
        own = {} if row.recipe is None else {"recipe": row.recipe}
        train, run = values.get("train", {}) | row.train, values.get("run", {}) | {"seed": seed}
        return make_config(values | own | {"train": train, "run": run})


def _once(what: str, values: Iterable[int | str]) -> None:
    doubled = [str(value) for value, times in Counter(values).items() if times > 1]
    if doubled:
        raise ConfigError(f"{what} must differ from each other; got more than once: {', '.join(doubled)}")


def _check(plan: Plan, row: Row) -> None:
    """What can be known before any data is loaded; every mistake with the name of its row."""
    try:
        make_recipe(plan.config(row, plan.seeds[0]).recipe)
    except UserError as error:
        raise ConfigError(f"row {row.name!r}: {error}") from None


def load_plan(path: Path | str) -> Plan:
    """Read a study's TOML file; `base` may be the path of a configuration, beginning at the file's folder."""
    path = Path(path)
    return make_plan(read_toml(path), path.parent)


def make_plan(values: Mapping[str, Any], beside: Path = Path()) -> Plan:
    """Validate a study's settings; a path in `base` begins at `beside`."""
    values = dict(values)
    base = values.get("base")
    if isinstance(base, str):
        values["base"] = base = read_toml(beside / base)
    if isinstance(base, Mapping):
        try:
            make_config(base)
        except ConfigError as error:
            raise ConfigError(f"base: {error}") from None
    return validate(Plan, values)


def dump_plan(plan: Plan) -> str:
    """The study as TOML, as it was given, with its base in place."""
    return tomli_w.dumps(plan.model_dump(mode="json", exclude_unset=True, exclude_none=True, by_alias=True))
