"""The plan of a study: TOML in, frozen values out; refuses rows that could not be compared in pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import tomli_w
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from fedmerit.config.attack import AttackConfig, Attacks
from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, Section, flatten, load_config, make_config, override, read_toml, validate
from fedmerit.config.task import TABLE
from fedmerit.core.measures import SHARES, TARGETS
from fedmerit.core.objectives import direction, is_share, measure_label
from fedmerit.core.types import ACCURACY
from fedmerit.errors import ConfigError, UnknownName, UntrustedPart, UserError
from fedmerit.study.grid import config_of, make_grid, parse_grid, point_name, point_values, points, value_text
from fedmerit.study.metrics import OF_MEASURE, audit_metric

SHARED = ("run",)
"""What all rows have in common: seeds, rounds and the draw of clients."""
SAME_DATA = ("data", "source", "model", "label", "target", "tolerance")
"""Keys of [task] that no row may change."""

Title: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Seed: TypeAlias = Annotated[int, Field(ge=0, strict=True)]
Target: TypeAlias = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(gt=0, le=1, strict=True)]

MOST_SEEDS = 10_000
ROUNDS = "rounds"
REFERENCES = {"alone": "standalone", "pooled": "pooled"}
"""Rows that show what federation is worth, and their recipes."""
MEASURES = (ACCURACY, *OF_MEASURE, ROUNDS)
"""What rows can be tuned by, in addition to the measure of the runs and their audits, `audit NAME` or `gap NAME`."""


def seed_list(first: int) -> BeforeValidator:
    """Accept a number of seeds where a list of them is expected: 10 stands for first..first + 9."""

    def listed(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if value > MOST_SEEDS:
            raise ValueError(f"there are at most {MOST_SEEDS:,} seeds")
        return tuple(range(first, first + value))

    return BeforeValidator(listed)


def _check_unique(what: str, values: Iterable[int | str]) -> None:
    repeated = [str(value) for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise ConfigError(f"{what} must differ from each other; got more than once: {', '.join(repeated)}")


class TuneConfig(Section):
    """[tune]: on which seeds, and by what measure, rows with a grid are tuned."""

    seeds: Annotated[tuple[Seed, ...], seed_list(101)] = Field(
        (101, 102, 103, 104, 105), description="the tuning seeds, or how many: 5 stands for 101..105"
    )
    by: str = Field(
        "", description="what the best point is best in; default: rounds where a target is set, else the runs' measure"
    )
    target: Target | None = Field(None, description="target of the measure, for rounds")
    share: Share | None = Field(
        None, description="share of the devices that have to be better than the target; default: 0.5"
    )

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
        _check_unique("tuning seeds", self.seeds)
        if self.measure == ROUNDS and self.target is None:
            raise ConfigError("tuning by rounds needs a target, such as target = 0.75; got none")
        if self.measure != ROUNDS and (self.target, self.share) != (None, None):
            raise ConfigError(
                f"target and share have no effect in tuning by {self.measure or 'the measure'}; remove them, or set "
                "by = 'rounds'"
            )
        return self

    @property
    def measure(self) -> str:
        """What the best point is best in; empty: the measure of the runs."""
        return self.by or (ROUNDS if self.target is not None else "")

    def about(self, measure: str) -> str:
        """What the best point is best in, in words; `measure` is that of the runs."""
        if self.target is None:
            return self.measure or measure_label(measure)
        return f"rounds until {self.share or 0.5:.0%} of the devices are {target_text(self.target, measure)}"


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
    def grid(self) -> dict[str, tuple[Any, ...]]:
        """The keys that are tuned, each with its values; an error where that is no grid."""
        return make_grid(self.tune)

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
        tuple(range(1, 11)), description="the seeds of every row, or their number: 10 stands for 1..10"
    )
    baseline: str = Field("", description="the row that others are compared with; default: the first")
    targets: tuple[Target, ...] = Field(
        TARGETS, description="targets of the measure, for rounds to target; default for errors such as mae: none"
    )
    shares: tuple[Share, ...] = Field(SHARES, description="shares of the devices that have to be better than a target")
    or_equal: Annotated[bool, Field(strict=True)] = Field(
        False, description="count devices that are at a target, not only those better than it"
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
    references: Annotated[bool, Field(strict=True)] | None = Field(
        None,
        description="add the rows `alone`, in which each client trains on its own rows, and `pooled`, with all rows in "
        "one place, to say what federation is worth; default: for tables without attack, [privacy], grid, timeout and "
        "early stopping",
    )
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
        crossed = (*rows, *(_attacked(row, attack) for attack in attacks for row in rows))
        wanted = info.data.get("references")
        return (*crossed, *_references(rows)) if (_fits(info.data, rows) if wanted is None else wanted) else crossed

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        """Every row has a valid configuration and a distinct name, and the baseline is one of the rows."""
        if not self.rows:
            raise ConfigError("a study has at least one [[row]]; got none")
        if not self.seeds:
            raise ConfigError("a study has at least one seed; set seeds = 10, or seeds = [1, 2, 3]")
        _check_unique("seeds", self.seeds)
        _check_unique("row names", [row.name for row in self.rows])
        _check_unique("row names, as parts of file names,", [row.slug for row in self.rows])
        if self.against not in [row.name for row in self.rows]:
            raise UnknownName("row as baseline", self.against, [row.name for row in self.rows])
        for row in self.rows:
            _check_row(self, row)
        measure = self.config(self.rows[0], self.seeds[0]).run.measure or ACCURACY
        largest = max((*self.targets, self.tune.target or 0))
        if direction(measure) > 0 and largest > 1:
            raise ConfigError(
                f"targets of {measure} must be at most 1 (got {largest:g}); for targets of an error set run.measure"
            )
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
        first = {} if row.tune is None else points(row.grid)[0]
        return config_of(self._values(row), first, seed)

    def tuning(self, row: Row) -> Plan:
        """The tuning of a row that has a grid: a study of the points on the tuning seeds, in the order of the grid."""
        base, tune = self._values(row), self.tune
        rows = [{"name": f"{row.name}: {point_name(point)}", **point_values(base, point)} for point in points(row.grid)]
        targets = [] if tune.target is None else [tune.target]
        values = {
            "seeds": tune.seeds,
            "targets": targets,
            "shares": [tune.share or 0.5],
            "base": base,
            "row": rows,
            "references": False,
        }
        return Plan.model_validate({"name": f"{row.name}: tuning", **values})

    def _values(self, row: Row) -> dict[str, Any]:
        values = {key: dict(part) if isinstance(part, Mapping) else part for key, part in self.base.items()}
        own = {} if row.recipe is None else {"recipe": row.recipe}
        changed = {key: values.get(key, {}) | part for key, part in (("train", row.train), ("task", row.task)) if part}
        return values | own | {"train": values.get("train", {})} | changed


def target_text(target: float, measure: str) -> str:
    """What a device has to be for a target.

    >>> target_text(0.75, "accuracy"), target_text(2.5, "mae")
    ('above 75%', 'below MAE 2.5')
    """
    side = "above" if direction(measure) > 0 else "below"
    return f"{side} {target:.0%}" if is_share(measure) else f"{side} {measure_label(measure)} {target:g}"


def _references(rows: Sequence[Row]) -> list[Row]:
    """The reference rows that a plan does not have yet."""
    recipes = {(row.recipe or {}).get("name") for row in rows}
    return [Row(name=name, recipe={"name": recipe}) for name, recipe in REFERENCES.items() if recipe not in recipes]


def _fits(plan: Mapping[str, Any], rows: Sequence[Row]) -> bool:
    """Whether reference rows are added where the plan does not say: they run on this table without further settings."""
    base = plan.get("base", {})
    task, run, train = (base.get(name) or {} for name in ("task", "run", "train"))
    changed = any(row.tune is not None or row.task or row.train for row in rows) or plan.get("attacks")
    needs_more = "privacy" in base or "attack" in task or "algorithm" in train or run.keys() & {"stop", "wait"}
    data = task.get("data")
    return (isinstance(data, list) or str(data).startswith(TABLE)) and not changed and not needs_more


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


def _check_row(plan: Plan, row: Row) -> None:
    """Check what can be known before any data is loaded; an error names its row."""
    try:
        with suppress(UntrustedPart):  # a study that is only read; its values were checked above
            recipe_of(plan.config(row, plan.seeds[0]))
        if row.tune is not None:
            own = flatten({"train": row.train, "recipe": row.recipe or {}})
            if both := sorted(own.keys() & row.grid):
                value = value_text(own[both[0]])
                raise ConfigError(f"{both[0]} is set and tuned; leave {value} to the grid, or the grid away")
    except UserError as error:
        raise ConfigError(f"row {row.name!r}: {error}") from None


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
    audits = plan.config(plan.tuned[0], plan.seeds[0]).run.audit
    if plan.tune.measure not in ("", *MEASURES, *map(audit_metric, audits)):
        raise ConfigError(
            f"tuning by {plan.tune.measure!r} needs that objective in run.audit; choose from "
            f"{', '.join(map(audit_metric, audits)) or 'no audit: run.audit is empty'}"
        )
    for row in plan.tuned:
        plan.tuning(row)


def load_plan(path: Path | str, overrides: Sequence[str] = ()) -> Plan:
    """Read a study's TOML file; `base` may be the path of a configuration, relative to the file's folder.

    `overrides`, such as train.lr=0.05, change the base, as they change a configuration. The configuration of a table is
    a study of its recipe, FedAvg and the reference rows.

    >>> load_plan("examples/study.toml").against
    'FedAvg'
    """
    path = Path(path)
    values = read_toml(path)
    if "row" not in values and values.keys() & Config.model_fields.keys():
        if not _fits({"base": values}, ()):
            raise ConfigError(
                f"{path} is a configuration, not a study (it has no [[row]]): use `fedmerit run {path} --out DIR`, or "
                "add --grid KEY=VALUE,VALUE"
            )
        recipe = load_config(path, overrides).recipe.name
        rows = [{"name": recipe}, *([] if recipe == "fedavg" else [{"name": "fedavg", "recipe": "fedavg"}])]
        values = {"name": path.stem, "base": values, "row": rows, "targets": []}
    return make_plan(values, path.parent, overrides)


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


def grid_plan(path: Path, grid: Sequence[str], overrides: Sequence[str] = ()) -> Plan:
    """A study of one tuned row: a configuration file with a grid of KEY=VALUE,VALUE,... over it."""
    seed = load_config(path, overrides).run.seed
    row = {"name": path.stem, "tune": parse_grid(grid)}
    return make_plan({"name": path.stem, "seeds": [seed], "base": path.name, "row": [row]}, path.parent, overrides)


def dump_plan(plan: Plan) -> str:
    """The study as TOML: the keys that were given, with the base's values in place of its path, and all rows."""
    values = plan.model_dump(mode="json", exclude={"attacks"}, exclude_unset=True, exclude_none=True, by_alias=True)
    return tomli_w.dumps(values)
