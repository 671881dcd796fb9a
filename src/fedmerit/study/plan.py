"""The plan of a study: TOML in, frozen values out; refuses rows that could not be compared in pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import tomli_w
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedmerit.config.attack import AttackConfig, Attacks
from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, Section, flatten, make_config, override, read_toml, validate
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.errors import ConfigError, UnknownName, UserError
from fedmerit.study.grid import value_text
from fedmerit.study.tuning import Seed, Share, Target, TuneConfig, Tuning, seed_list

SHARED = ("run",)
"""What all rows have in common: seeds, rounds and the draw of clients."""
SAME_DATA = ("data", "source", "model", "label", "target", "tolerance")
"""Keys of [task] that no row may change."""

Title: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


class Row(Section):
    """[[row]]: one line of the table: what it changes, with everything else the same."""

    name: Title = Field(description="how tables call the row")
    recipe: dict[str, Any] | None = Field(None, description="a [recipe] in place of the base's; default: the base's")
    train: dict[str, Any] = Field({}, description="keys of [train] that differ from the base's")
    task: dict[str, Any] = Field(
        {}, description="keys of [task] that differ from the base's: clients, server, kinds, attack ...; not the data"
    )
    null: Annotated[bool, Field(strict=True)] = Field(
        False, description="a null row: other clients and batches are drawn, the data and the first model stay the same"
    )
    tune: dict[str, Any] | None = Field(
        None, description="a grid: keys of [train] and [recipe], each with values to choose from before the row is run"
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, values: Any) -> Any:
        wrong = [key for key in SHARED if isinstance(values, Mapping) and key in values]
        if wrong:
            raise ConfigError(
                f"row {values.get('name', '')!r} sets {' and '.join(wrong)}: rows are compared in pairs and share "
                "seeds, rounds and the draw of clients; a row sets recipe, train, task, null and tune, the rest stands "
                "in [base]"
            )
        changed = values.get("task") if isinstance(values, Mapping) else None
        if isinstance(changed, Mapping) and (other := [key for key in SAME_DATA if key in changed]):
            raise ConfigError(
                f"row {values.get('name', '')!r} sets task.{other[0]}: rows are compared in pairs on the same data; a "
                "row may change who holds it (clients, partition, server, kinds, attack). Rows on other data are "
                "another study"
            )
        return values

    @field_validator("recipe", mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not _slug(value):
            raise ValueError("a row's name has at least one letter or digit")
        return value

    @property
    def slug(self) -> str:
        """The name as a part of file names: `LD > DS` becomes `ld-ds`."""
        return _slug(self.name)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name.lower()).strip("-.")


class Plan(Section):
    """A study: rows x seeds. For each seed all rows share the data, the first model and the draw of clients.

    `load_plan` reads one from TOML, `compare` runs it.
    """

    name: Title = Field("study", description="how reports call the study")
    seeds: Annotated[tuple[Seed, ...], seed_list(1)] = Field(
        description="the seeds of every row, or how many: 5 stands for 1..5"
    )
    baseline: str = Field("", description="the row that others are compared with; default: the first")
    targets: tuple[Target, ...] = Field(TARGETS, description="target accuracies for rounds to target")
    shares: tuple[Share, ...] = Field(SHARES, description="shares of the devices that have to be above a target")
    or_equal: Annotated[bool, Field(strict=True)] = Field(
        False, description="count devices that are at a target, not only those above it"
    )
    base: dict[str, Any] = Field(
        {}, description="what all rows share, as in a configuration: [base.task] ..., or the path of one"
    )
    attacks: Attacks = Field(
        (),
        alias="attack",
        description="attacks, with the keys of [task.attack]; each row is also run under each of them",
    )
    tune: TuneConfig = Field(TuneConfig(), description="how rows with a grid are tuned, see [tune]")
    rows: tuple[Row, ...] = Field(alias="row", description="the rows, see [[row]]")

    @field_validator("rows")
    @classmethod
    def _cross(cls, rows: tuple[Row, ...], info: ValidationInfo) -> tuple[Row, ...]:
        """Add every row under every attack; rows under one attack are adjacent, so that they share loaded data."""
        attacks: Sequence[AttackConfig] = info.data.get("attacks", ())
        tasks = {"base": info.data.get("base", {}).get("task", {}), **{f"row {row.name!r}": row.task for row in rows}}
        if attacks and (both := [where for where, task in tasks.items() if "attack" in task]):
            raise ConfigError(
                f"{both[0]} sets task.attack, and [[attack]] sets it for every row; leave one of the two out"
            )
        return (*rows, *(_attacked(row, attack) for attack in attacks for row in rows))

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        """Every row has a valid configuration and a name of its own, and the baseline is one of the rows."""
        if not self.rows:
            raise ConfigError("a study has at least one [[row]]; got none")
        if not self.seeds:
            raise ConfigError("a study has at least one seed; set seeds = 5, or seeds = [1, 2, 3]")
        _check_unique("seeds", self.seeds)
        _check_unique("row names", [row.name for row in self.rows])
        _check_unique("row names, as parts of file names,", [row.slug for row in self.rows])
        if self.against not in [row.name for row in self.rows]:
            raise UnknownName("row as baseline", self.against, [row.name for row in self.rows])
        for row in self.rows:
            _check_row(self, row)
        _check_tune(self)
        return self

    @property
    def against(self) -> str:
        """The name of the baseline, with which the other rows are compared."""
        return self.baseline or self.rows[0].name

    @property
    def tuned(self) -> list[Row]:
        """The rows with a grid."""
        return [row for row in self.rows if row.tune is not None]

    def config(self, row: Row, seed: int) -> Config:
        """The configuration of a row's run with a seed; a seed in [base.run] has no effect.

        Of a row with a grid this is the first point: which one is run is known when the row was tuned.
        """
        if row.tune is not None:
            return self.tuning(row).config(0, seed)
        values = self._values(row)
        return make_config(values | {"run": values.get("run", {}) | {"seed": seed}})

    def tuning(self, row: Row) -> Tuning:
        """The tuning of a row that has a grid: by the measure and on the seeds of [tune]."""
        settings = self.tune.model_dump(exclude_unset=True)
        return Tuning(name=row.name, base=self._values(row), grid=row.tune or {}, **settings)

    def _values(self, row: Row) -> dict[str, Any]:
        values = {key: dict(part) if isinstance(part, Mapping) else part for key, part in self.base.items()}
        own = {} if row.recipe is None else {"recipe": row.recipe}
        changed = {key: values.get(key, {}) | part for key, part in (("train", row.train), ("task", row.task)) if part}
        return values | own | {"train": values.get("train", {})} | changed


def _attacked(row: Row, attack: AttackConfig) -> Row:
    """The row under an attack, called `fedavg (scale 20%)`."""
    task = row.task | {"attack": attack.model_dump(mode="json", exclude_unset=True)}
    return row.model_copy(update={"name": f"{row.name} ({attack_label([attack])})", "task": task})


def attack_label(attacks: Iterable[AttackConfig]) -> str:
    """The kind, the settings that are not the default, and the share of each attack: `scale strength=3 20%`."""
    parts = []
    for attack in attacks:
        changed = attack.model_dump(exclude={"kind", "share"}, exclude_defaults=True)
        changed |= changed.pop("facts", {})
        parts.append(" ".join([attack.kind, *(f"{k}={v:g}" for k, v in changed.items()), f"{100 * attack.share:g}%"]))
    return " + ".join(parts)


def _check_unique(what: str, values: Iterable[int | str]) -> None:
    repeated = [str(value) for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise ConfigError(f"{what} must differ from each other; got more than once: {', '.join(repeated)}")


def _check_row(plan: Plan, row: Row) -> None:
    """Check what can be known before any data is loaded; an error names its row."""
    try:
        if row.tune is None:
            recipe_of(plan.config(row, plan.seeds[0]))
        else:
            _check_own(row, plan.tuning(row))
    except UserError as error:
        raise ConfigError(f"row {row.name!r}: {error}") from None


def _check_own(row: Row, tuning: Tuning) -> None:
    """A row that tunes a key sets no value of it."""
    own = flatten({"train": row.train, "recipe": row.recipe or {}})
    if both := sorted(set(own) & set(tuning.grid)):
        raise ConfigError(f"{both[0]} is set and tuned; leave {value_text(own[both[0]])} to the grid, or the grid away")


def _check_tune(plan: Plan) -> None:
    """Keep what is chosen apart from what is reported, and refuse settings of a tuning that no row has."""
    if not plan.tuned:
        if "tune" in plan.model_fields_set:
            raise ConfigError(
                "[tune] has no effect: no [[row]] names a grid; add tune = {'train.lr' = [0.01, 0.1]} to one"
            )
        return
    if both := sorted(set(plan.tune.seeds) & set(plan.seeds)):
        raise ConfigError(
            f"tuning seeds and reporting seeds must differ, for a row looks better on the seeds it was chosen on; got "
            f"{', '.join(map(str, both))} in both; set other seeds in [tune]"
        )


def load_plan(path: Path | str, overrides: Sequence[str] = ()) -> Plan:
    """Read a study's TOML file; `base` may be the path of a configuration, relative to the file's folder.

    `overrides`, such as train.lr=0.05, change the base, as they change a configuration.

    >>> load_plan("examples/study.toml").against
    'FedAvg'
    """
    path = Path(path)
    return make_plan(read_toml(path), path.parent, overrides)


def make_plan(values: Mapping[str, Any], folder: Path = Path(), overrides: Sequence[str] = ()) -> Plan:
    """Validate a study's settings; a path in `base` is relative to `folder`."""
    values = dict(values)
    base = values.get("base")
    if isinstance(base, str):
        values["base"] = base = read_toml(folder / base)
    if overrides:
        values["base"] = base = deepcopy(dict(base or {}))
        override(base, overrides)
    if isinstance(base, Mapping):
        try:
            make_config(base)
        except ConfigError as error:
            raise ConfigError(f"base: {error}") from None
    return validate(Plan, values)


def dump_plan(plan: Plan) -> str:
    """The study as TOML: the keys that were given, with the base's values in place of its path, and all rows."""
    values = plan.model_dump(mode="json", exclude={"attacks"}, exclude_unset=True, exclude_none=True, by_alias=True)
    return tomli_w.dumps(values)
