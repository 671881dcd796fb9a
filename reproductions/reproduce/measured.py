"""Measured runs of a table in a small CSV file, a line per run: a later call, on any machine, runs what is missing."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from fedmerit.errors import ConfigError
from fedmerit.store.frames import Frame, make_frame
from fedmerit.store.run_folder import open_ledger
from fedmerit.study.metrics import read_metrics
from fedmerit.study.plan import Plan
from fedmerit.study.study import compare
from fedmerit.study.study_folder import STUDY, Member, members, read_plan
from fedmerit.study.workers import Ended, OnStep, Step
from reproductions.reproduce.runner import Watch

Alike: TypeAlias = Callable[[str], object]
COLUMNS = ("row", "seed", "rounds", "accuracy", "diverged", "settings", "instructions")
"""The columns before the cells; `settings` is a hash, so that runs of different settings do not mix."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The lines of a file for one plan, with the names of a `Study` that tables of rounds read."""

    plan: Plan
    lines: Mapping[tuple[str, int], Mapping[str, str]]
    runs: tuple[Member, ...] = ()
    unfinished: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """The names of the plan's rows."""
        return [row.name for row in self.plan.rows]

    @property
    def horizon(self) -> int:
        """The number of rounds of every run."""
        return self.plan.config(self.plan.rows[0], 1).run.rounds

    @property
    def diverged(self) -> list[str]:
        """The runs that diverged, and the round in which they had reached their last target, if they reached all."""
        lost = {pair: line for pair, line in self.lines.items() if line["diverged"] == "True"}
        return [f"{row}, seed {seed}{self._reached_all(line)}" for (row, seed), line in lost.items()]

    def _reached_all(self, line: Mapping[str, str]) -> str:
        cells = [line[cell_name(target, share)] for target in self.plan.targets for share in self.plan.shares]
        return f" (after all targets, round {max(map(int, cells))})" if all(cells) else ""

    @property
    def missing(self) -> list[str]:
        """The runs that the file does not have."""
        pairs = [(row, seed) for seed in self.plan.seeds for row in self.rows]
        return [f"{row}, seed {seed}" for row, seed in pairs if (row, seed) not in self.lines]

    @property
    def reached(self) -> Frame:
        """A line per run, target and share, as `Study.reached`; without the runs in `diverged`."""
        kept = {pair: line for pair, line in self.lines.items() if line["diverged"] != "True"}
        lines = (
            {"row": row, "seed": seed, "target": target, "share": share}
            | {"rounds": float(line[cell_name(target, share)] or "nan")}
            for (row, seed), line in kept.items()
            for target in self.plan.targets
            for share in self.plan.shares
        )
        return make_frame(lines, ("row", "seed", "target", "share", "rounds"))


def cell_name(target: float, share: float) -> str:
    """The column of a cell: 0.95/0.5 has the rounds until half of the devices are above 95 %; empty: not reached."""
    return f"{target:g}/{share:g}"


def settings_of(plan: Plan, row: str) -> str:
    """A hash of what decides the runs of a row."""
    (found,) = [one for one in plan.rows if one.name == row]
    return sha256(json.dumps([plan.base, found.recipe, found.null, plan.or_equal]).encode()).hexdigest()[:12]


def read_measured(plan: Plan, file: Path, alike: Alike = str) -> Measured:
    """Read the lines of the plan's runs; a file that is not there has none.

    Rows with the same value of `alike` have the same weights: a row that the file lacks gets the line of another one.
    """
    if not file.exists():
        return Measured(plan, {})
    header = [*COLUMNS, *(cell_name(target, share) for target in plan.targets for share in plan.shares)]
    with file.open(encoding="utf-8", newline="") as text:
        reader = csv.DictReader(text)
        lines = list(reader)
    if reader.fieldnames != header:
        raise ConfigError(f"{file} must have the columns of this table's targets and shares; choose another --measured")
    names = [row.name for row in plan.rows]
    found = {(line["row"], int(line["seed"])): line for line in lines if line["row"] in names}
    for (row, seed), line in found.items():
        if line["settings"] != settings_of(plan, row):
            raise ConfigError(
                f"{file}: {row}, seed {seed} was run with other settings (scale, rounds or recipe); choose another "
                "--measured"
            )
    by_weights = {(alike(row), seed): line for (row, seed), line in found.items()}
    pairs = [(row, seed) for seed in plan.seeds for row in names if (alike(row), seed) in by_weights]
    return Measured(plan, {(row, seed): found.get((row, seed), by_weights[alike(row), seed]) for row, seed in pairs})


def run_missing(
    plan: Plan, out: Path, file: Path, alike: Alike = str, *, jobs: int | None = None, watch: Watch | None = None
) -> Measured:
    """Run what the file lacks, seed by seed, and append each run to the file when it ends.

    Each seed has a study of its own in `out`, so that a folder need not hold the runs of another machine. Of rows with
    the same value of `alike` only the first is run.
    """
    distinct = {alike(row.name): row.name for row in reversed(plan.rows)}.values()
    for seed in plan.seeds:
        folder = out / f"seed{seed}"
        begun = [row.name for row in read_plan(folder).rows] if (folder / STUDY).exists() else []
        done = read_measured(plan, file, alike).lines
        missing = [name for name in distinct if (name, seed) not in done]
        rows = tuple(row for row in plan.rows if row.name in (*missing, *begun))
        part = plan.model_copy(update={"seeds": (seed,), "rows": rows})
        runs = members(part, folder)
        append(plan, runs, file)
        if all((run.row, seed) in read_measured(plan, file).lines for run in runs):
            continue
        with watch(runs) if watch else nullcontext() as show:
            compare(part, folder, jobs=jobs, on_step=partial(_on_step, plan, file, show))
    return read_measured(plan, file, alike)


def _on_step(plan: Plan, file: Path, show: OnStep | None, step: Step) -> None:
    if show is not None:
        show(step)
    if isinstance(step.answer, Ended):
        append(plan, [step.member], file)


def append(plan: Plan, runs: Sequence[Member], file: Path) -> None:
    """Append the finished runs that the file does not have, a whole line at a time.

    A run whose last accuracy is below the lowest target has diverged: its clients' updates are not finite, so the model
    stays as it is.
    """
    done = read_measured(plan, file).lines
    for run in runs:
        if (run.row, run.seed) in done or not run.finished:
            continue
        with open_ledger(run.folder) as ledger:
            read = read_metrics(ledger, plan.targets, plan.shares, or_equal=plan.or_equal)
            instructions = ledger.meta()["instructions"]
        accuracy = read.values["accuracy"]
        values = (run.row, run.seed, run.config.run.rounds, f"{accuracy:.4f}", not accuracy >= min(plan.targets))
        cells = {cell_name(*cell): rounds for cell, rounds in read.reached.items()}
        line = dict(zip(COLUMNS, (*values, settings_of(plan, run.row), instructions), strict=True))
        new = not file.exists()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8", newline="") as text:
            writer = csv.DictWriter(text, [*COLUMNS, *cells], lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(line | cells)
