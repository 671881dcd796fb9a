"""What a reproduction is: the rows of a published table, what is run at each scale, and how its tables are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from fedmerit.core.measures import SHARES
from fedmerit.core.system import cores
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.study.plan import Plan, make_plan
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable

Scale: TypeAlias = Literal["small", "medium", "paper"]
SCALES: tuple[Scale, ...] = ("small", "medium", "paper")
SEEDS = 5
UNITS = (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48), ("days", 86400, float("inf")))
NULL = "null"
"""The name of a null row."""
WHOLE = ""
"""The name of a reproduction's only part, whose study lies in the folder itself."""

Base: TypeAlias = Mapping[str, Any]
Studies: TypeAlias = Mapping[str, Study]


@dataclass(frozen=True, slots=True)
class Setting:
    """A reproduction at one scale: what all rows share, how it differs from the paper, how long it takes.

    `bases` has the configuration of each part. `targets` replace the published ones, place by place. `seconds` is the
    time of one round of one run on one core, with its share of loading the data, as measured on the machine of
    docs/results or estimated from such measurements. `rates` is the grid of learning rates that the paper searched on
    its baseline; empty where it did not. `rows` stand for the reproduction's where they go by the number of rounds.
    """

    bases: Mapping[str, Base]
    seconds: float
    differs: tuple[str, ...] = ()
    targets: tuple[float, ...] = (0.9,)
    rates: tuple[float, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds of every run."""
        return int(next(iter(self.bases.values()))["run"]["rounds"])

    def with_rounds(self, rounds: int) -> Setting:
        """The same with another number of rounds, which is said among what differs."""
        bases = {part: {**base, "run": {**base["run"], "rounds": rounds}} for part, base in self.bases.items()}
        return replace(
            self, bases=bases, differs=(*self.differs, f"{rounds:,} rounds by --rounds, not {self.rounds:,}")
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Tables in the paper's layout, pictures (SVG) by name, and notes that a reader needs."""

    tables: tuple[TextTable, ...]
    figures: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A published experiment by name; the first row is the baseline.

    `make_result` turns the finished studies of all parts into tables. `see` are pages with earlier results.
    """

    name: str
    paper: str
    about: str
    rows: tuple[Mapping[str, Any], ...]
    settings: Mapping[Scale, Setting]
    make_result: Callable[[Setting, Studies], Result]
    shares: tuple[float, ...] = SHARES
    study: str = ""

    def setting(self, scale: str) -> Setting:
        """What is run at a scale."""
        for name, setting in self.settings.items():
            if name == scale:
                return setting
        raise UnknownName("scale", scale, self.settings)

    def with_rounds(self, rounds: int) -> Reproduction:
        """The same with another number of rounds at every scale."""
        return replace(self, settings={scale: setting.with_rounds(rounds) for scale, setting in self.settings.items()})

    def plans(
        self,
        scale: str,
        seeds: int = SEEDS,
        rows: Sequence[str] = (),
        lr: float | None = None,
        *,
        or_equal: bool = False,
        null: bool = False,
    ) -> dict[str, Plan]:
        """The plan of each part's study; `rows` restricts it to some rows and the baseline, `lr` replaces the rate.

        `or_equal` counts devices at a target too; `null` adds a row that repeats the baseline with another draw.
        """
        setting = self.setting(scale)
        chosen = self._chosen(rows, setting)
        chosen += [{"name": NULL, "recipe": self.rows[0]["recipe"], "null": True}] if null else []
        return {
            part: make_plan(
                {
                    "name": " ".join(filter(None, (self.study or self.name, part))),
                    "seeds": seeds,
                    "targets": setting.targets,
                    "shares": self.shares,
                    **({"or_equal": True} if or_equal else {}),
                    "base": base if lr is None else {**base, "train": {**base["train"], "lr": lr}},
                    "row": chosen,
                }
            )
            for part, base in setting.bases.items()
        }

    def _chosen(self, rows: Sequence[str], setting: Setting) -> list[Mapping[str, Any]]:
        names = [row["name"] for row in self.rows]
        for row in rows:
            if row not in names:
                raise UnknownName(f"row of {self.name}", row, names)
        return [row for row in setting.rows or self.rows if not rows or row["name"] in (*rows, names[0])]


def expected(plans: Mapping[str, Plan], setting: Setting, jobs: int | None = None) -> float:
    """Seconds that all runs take together on a machine that does nothing else."""
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is the number of runs at once, at least 1; got {jobs}")
    runs = sum(len(plan.rows) * len(plan.seeds) for plan in plans.values())
    return setting.seconds * setting.rounds * runs / (jobs or cores())


def duration_text(seconds: float) -> str:
    """A rounded time: about 4 min, about 9 h, about 12 days."""
    unit, length = next((unit, length) for unit, length, up_to in UNITS if seconds < up_to * length)
    return f"about {seconds / length:.0f} {unit}"
