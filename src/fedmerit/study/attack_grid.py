"""The attack grid: runs its studies one after the other, resumes where it was stopped, and reads what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from fedmerit.config.schema import Config
from fedmerit.errors import FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.model_files import read_model
from fedmerit.store.run_folder import MODEL, open_ledger
from fedmerit.study.attack_metrics import AttackMetrics, measure_attack
from fedmerit.study.attack_plan import NONE, AttackPlan, Bounds, Cell, dump_attack_plan
from fedmerit.study.scheduler import OnStep
from fedmerit.study.study import compare
from fedmerit.study.study_folder import Member, members
from fedmerit.study.worker import TaskLoader
from fedmerit.tasks.attackers import find_attackers

PLAN = "attack.toml"
Watch = Callable[[list[Member]], AbstractContextManager[OnStep]]
"""Given all runs, a context that gives the function to call after each step."""


@dataclass(frozen=True, slots=True)
class Score:
    """One recipe under one attack with one share, means over the seeds that are finished.

    drop      accuracy lost against the same recipe without attackers, over the same seeds
    missed    the bounds that it misses, by name
    """

    attack: str
    share: float
    row: str
    seeds: int
    accuracy: float
    drop: float
    success: float
    weight: float
    heads: float
    precision: float
    recall: float
    false_alarms: float
    missed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid that was run, completely or in part."""

    plan: AttackPlan
    scores: tuple[Score, ...]
    failed: Mapping[str, str] = field(default_factory=dict)

    def worst(self) -> list[Score]:
        """For each share and recipe the attack under which accuracy is lowest."""
        attacked = [score for score in self.scores if score.attack != NONE and not math.isnan(score.accuracy)]
        places = dict.fromkeys((score.share, score.row) for score in attacked)
        return [min((s for s in attacked if (s.share, s.row) == at), key=lambda s: s.accuracy) for at in places]


def run_grid(plan: AttackPlan, out: Path, *, jobs: int | None = None, watch: Watch | None = None) -> Grid:
    """Do the runs that are not finished, and read the grid; stopped or killed at any time, the same call resumes it."""
    cells = plan.cells()
    _hold_plan(plan, out)
    everything = [member for cell in cells for member in members(cell.plan, out / cell.folder)]
    failed: dict[str, str] = {}
    with nullcontext() if watch is None else watch(everything) as on_step:
        for cell in cells:
            study = compare(cell.plan, out / cell.folder, jobs=jobs, on_step=on_step)
            failed |= {f"{cell.folder}: {run}": reason for run, reason in study.failed.items()}
    return Grid(plan, tuple(read_scores(plan, out)), failed)


def _hold_plan(plan: AttackPlan, out: Path) -> None:
    """Write the plan down; its studies refuse what does not fit to what is there."""
    if out.exists() and any(out.iterdir()) and not (out / PLAN).is_file():
        raise FolderError(f"{out} exists and holds no attack grid; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder {out}: {error.strerror}; choose another --out") from None
    write_new_file(out / PLAN, dump_attack_plan(plan), "another --out")


def read_scores(plan: AttackPlan, out: Path) -> Iterator[Score]:
    """A line per attack, share and recipe."""
    cells = plan.cells()
    metrics = _read_metrics(cells, out)
    for cell in cells:
        for row in plan.rows:
            of_seeds = {
                seed: one
                for (attack, share, name, seed), one in metrics.items()
                if (attack, share, name) == (cell.attack, cell.share, row.name)
            }
            honest = {
                seed: metrics[NONE, 0.0, row.name, seed] for seed in of_seeds if (NONE, 0.0, row.name, seed) in metrics
            }
            yield _score(cell, row.name, of_seeds, honest, plan.bounds)


def _score(
    cell: Cell, row: str, of_seeds: Mapping[int, AttackMetrics], honest: Mapping[int, AttackMetrics], bounds: Bounds
) -> Score:
    found = list(of_seeds.values())
    means = {
        name.name: _mean([getattr(one, name.name) for one in found])
        for name in fields(AttackMetrics)
        if name.name != "detection"
    }
    drop = _mean([honest[seed].accuracy - one.accuracy for seed, one in of_seeds.items() if seed in honest])
    missed = {
        "drop": drop > bounds.drop,
        "success": means["success"] > bounds.success,
        "weight": means["weight"] > bounds.weight * means["heads"],
    }
    return Score(
        cell.attack, cell.share, row, len(found), drop=drop,
        precision=_mean([one.detection.precision for one in found]),
        recall=_mean([one.detection.recall for one in found]),
        missed=tuple(name for name, is_missed in missed.items() if is_missed),
        **means,
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    """Of what is known; NaN where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _read_metrics(cells: Sequence[Cell], out: Path) -> dict[tuple[str, float, str, int], AttackMetrics]:
    """Of every finished run, seed by seed, so that the test rows of each seed are loaded once."""
    load, metrics = TaskLoader(), dict[tuple[str, float, str, int], AttackMetrics]()
    for seed in cells[0].plan.seeds:
        for cell in cells:
            for member in members(cell.plan, out / cell.folder):
                if member.seed == seed and member.finished:
                    metrics[cell.attack, cell.share, member.row, seed] = _measure(member, load)
    return metrics


def _measure(member: Member, load: TaskLoader) -> AttackMetrics:
    config = member.config
    task = load(_clean(config))
    attackers = find_attackers(config.task, len(task.federation.names), config.run.seed)
    model = read_model(member.folder / MODEL) if member.has_common_model else None
    with open_ledger(member.folder) as ledger:
        return measure_attack(ledger, attackers, model[0] if model else None, task.federation, task.learner)


def _clean(config: Config) -> Config:
    """The same without attackers: test rows are the same, and the data of a seed is loaded once for all cells."""
    return config.model_copy(update={"task": config.task.model_copy(update={"attack": ()})})
