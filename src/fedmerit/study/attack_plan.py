"""The plan of an attack grid: attacks x shares x recipes x seeds, each attack and share a study of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import tomli_w
from pydantic import BeforeValidator, Field, model_validator

from fedmerit.config.attack import KINDS, AttackConfig
from fedmerit.config.schema import Section, make_config, read_toml, validate
from fedmerit.config.sections import Positive
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.study.plan import Plan, Row, Title, make_plan
from fedmerit.study.tuning import Seed, Share, seed_list

NONE = "none"
"""The cell without attackers, against which the others are measured."""
LIES = {"samples": 10.0}
"""What liars claim where the plan does not say: ten times their rows."""


class Bounds(Section):
    """[bounds]: where a cell is marked as missed."""

    drop: Positive = Field(0.08, description="accuracy lost against the same recipe without attackers")
    success: Positive = Field(0.15, description="share of the attackers' rows that get the label they want")
    weight: Positive = Field(2.0, description="weight that attackers hold, in multiples of their share of heads")


def _attack(value: Any) -> Any:
    """Accept a kind where a table is expected; liars claim something."""
    table = {"kind": value} if isinstance(value, str) else value
    if isinstance(table, Mapping) and table.get("kind") == "liar" and "facts" not in table:
        return {**table, "facts": LIES}
    return table


Attack: TypeAlias = Annotated[AttackConfig, BeforeValidator(_attack)]


@dataclass(frozen=True, slots=True)
class Cell:
    """One attack with one share of attackers, as a study of all recipes; `attack` is NONE without attackers."""

    attack: str
    share: float
    plan: Plan

    @property
    def folder(self) -> str:
        """Its folder within the grid's."""
        return NONE if self.attack == NONE else f"{self.attack.replace(' ', '-').replace('=', '')}-{self.share:g}"


class AttackPlan(Section):
    """A grid of attacks; `load_attack_plan` reads one from TOML, `run_grid` runs it."""

    name: Title = Field("attacks", description="how reports call the grid")
    seeds: Annotated[tuple[Seed, ...], seed_list(1)] = Field(
        (1, 2, 3), description="the seeds of every cell, or how many: 5 stands for 1..5"
    )
    attacks: tuple[Attack, ...] = Field(
        tuple(AttackConfig.model_validate(_attack(kind)) for kind in KINDS),
        description="kinds, or tables as [task.attack] takes them, without a share; default: all kinds",
    )
    shares: tuple[Share, ...] = Field((0.2, 0.4), description="shares of the clients that attack")
    bounds: Bounds = Field(Bounds(), description="where a cell counts as missed")
    base: dict[str, Any] = Field({}, description="what all runs share, as in a study")
    rows: tuple[Row, ...] = Field(alias="row", description="the recipes, as in a study")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.base.get("task", {}).get("attack"):
            raise ConfigError("base.task.attack has no effect: a grid sets it, by attacks and shares; leave it out")
        tuned = [row.name for row in self.rows if row.tune]
        if tuned:
            raise ConfigError(f"a grid does not tune its rows; tune {tuned[0]!r} in a study, and set what it found")
        for name, values in (("attacks", self.attacks), ("shares", self.shares)):
            if not values:
                raise ConfigError(f"a grid has at least one of its {name}; got none")
        labels = [_label(attack) for attack in self.attacks]
        if len(set(labels)) < len(labels) or len(set(self.shares)) < len(self.shares):
            raise ConfigError(f"attacks and shares of a grid differ from each other; got {labels}, {[*self.shares]}")
        self.cells()
        return self

    def cells(self) -> list[Cell]:
        """The honest cell first, then every attack with every share."""
        attacked = [
            Cell(_label(attack), share, self._study(attack.model_copy(update={"share": share})))
            for share in self.shares
            for attack in self.attacks
        ]
        return [Cell(NONE, 0.0, self._study(None)), *attacked]

    def _study(self, attack: AttackConfig | None) -> Plan:
        given = {} if attack is None else {"attack": attack.model_dump(mode="json", exclude_none=True)}
        base = {**self.base, "task": {**self.base.get("task", {}), **given}}
        rows = [row.model_dump(mode="json", exclude_none=True, exclude_unset=True) for row in self.rows]
        return make_plan({"name": self.name, "seeds": list(self.seeds), "base": base, "row": rows})


def _label(attack: AttackConfig) -> str:
    """The kind, with what differs from the kind's own settings."""
    changed = attack.model_dump(mode="json", exclude={"kind", "share"}, exclude_defaults=True)
    if changed.get("facts") == LIES:
        del changed["facts"]
    facts = changed.pop("facts", {})
    return " ".join([attack.kind, *(f"{key}={value:g}" for key, value in {**changed, **facts}.items())])


def load_attack_plan(
    path: Path,
    *,
    attacks: Sequence[str] = (),
    shares: Sequence[float] = (),
    rows: Sequence[str] = (),
    seeds: int | None = None,
) -> AttackPlan:
    """A grid from TOML: a plan with `base` and rows, or the configuration of a run, whose recipe is set beside fedavg.

    `attacks`, `shares` and `seeds` stand for those of the file; of its rows, those named in `rows` are kept.
    """
    values = read_toml(path)
    if not {"row", "base"} & values.keys():
        make_config(values)
        recipe = values.pop("recipe", {"name": "fedavg"})
        both = [{"name": "fedavg", "recipe": {"name": "fedavg"}}]
        both += (
            [{"name": str(recipe.get("name")), "recipe": recipe}] if recipe.get("name", "fedavg") != "fedavg" else []
        )
        values = {"name": path.stem, "base": values, "row": both}
    if isinstance(values.get("base"), str):
        values["base"] = read_toml(path.parent / values["base"])
    values |= {"attacks": list(attacks)} if attacks else {}
    values |= {"shares": list(shares)} if shares else {}
    values |= {"seeds": seeds} if seeds is not None else {}
    plan = validate(AttackPlan, values)
    known = {row.name: row for row in plan.rows}
    unknown = [name for name in rows if name not in known]
    if unknown:
        raise UnknownName("row of the grid", unknown[0], known)
    return plan.model_copy(update={"rows": tuple(row for row in plan.rows if row.name in rows)}) if rows else plan


def dump_attack_plan(plan: AttackPlan) -> str:
    """The grid as TOML, with the base's values in place of its path."""
    return tomli_w.dumps(plan.model_dump(mode="json", exclude_none=True, by_alias=True))
