"""Tune: do the runs that successive halving asks for, and read what a tuning found (`Tuned`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmerit.config.schema import Config, dump_config, make_config
from fedmerit.core.system import cores
from fedmerit.errors import ConfigError, FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.frames import Frame
from fedmerit.store.run_folder import config_to_resume, differences, held, open_ledger
from fedmerit.study.grid import point_name, value_text
from fedmerit.study.metrics import read_metrics
from fedmerit.study.scheduler import OnStep, Workers, run_all
from fedmerit.study.statistics import restricted
from fedmerit.study.study_folder import (
    BEST,
    RUNS,
    TUNE,
    Member,
    make_folder,
    read_tuning,
    tuning_member,
    write_tuning,
)
from fedmerit.study.tuning import ROUNDS, Halving, Outcome, Outcomes, Tuning, halve
from fedmerit.study.verdicts import Metric, compare_rows

CHOSEN, DROPPED = "chosen", "dropped"


@dataclass(frozen=True, repr=False)
class Tuned:
    """A tuning in its folder, as far as it got.

    `halving` has the heats, and `outcomes` what each run came to; `failed` are the runs that failed in this call of
    `tune`, with the reason.
    """

    tuning: Tuning
    folder: Path
    outcomes: Outcomes
    halving: Halving
    failed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> Tuned:
        """Read a tuning from its folder."""
        return read_tuned(read_tuning(Path(folder)), Path(folder))

    @property
    def best(self) -> dict[str, Any] | None:
        """The values of the best point; None while runs are missing."""
        return None if self.halving.best is None else self.tuning.points[self.halving.best]

    @property
    def config(self) -> Config | None:
        """The configuration of the best point, with the seed of the base."""
        return None if self.halving.best is None else self.tuning.config(self.halving.best)

    @property
    def edges(self) -> dict[str, str]:
        """The keys whose best value is the smallest or largest of their grid."""
        return {} if self.halving.best is None else self.tuning.edges(self.halving.best)

    @property
    def runs(self) -> list[Member]:
        """The runs that the heats so far ask for."""
        return [tuning_member(self.tuning, self.folder, *run) for run in self.halving.asked]

    @property
    def missing(self) -> list[Member]:
        """Those of them that are not finished."""
        return [tuning_member(self.tuning, self.folder, *run) for run in self.halving.missing]

    @property
    def coming(self) -> int:
        """How many runs later heats will ask for."""
        return self.tuning.runs - len(self.halving.asked)

    @property
    def horizon(self) -> int:
        """The rounds of every run."""
        return make_config(self.tuning.base).run.rounds

    @cached_property
    def points(self) -> Frame:
        """A line per point, the last to drop out first: seeds, mean, paired difference to the best, verdict.

        Means and differences are over the seeds of the point, all of which the best point has.
        """
        order = list(dict.fromkeys(point for heat in reversed(self.halving.heats) for point in heat.points))
        against = self.tuning.label(order[0])
        frame = compare_rows([self._metric(order)], against).rename(columns={"row": "point"})
        last = {*self.halving.heats[-1].points}
        verdicts = [
            (CHOSEN if self.halving.best is not None else "") if place == 0 else verdict if point in last else DROPPED
            for place, (point, verdict) in enumerate(zip(order, frame["verdict"], strict=True))
        ]
        values = {key: [value_text(self.tuning.points[point][key]) for point in order] for key in self.tuning.grid}
        names = [point_name(self.tuning.points[point]) for point in order]
        return frame.assign(point=names, verdict=verdicts, **values)

    def _metric(self, order: Sequence[int]) -> Metric:
        """The measure of every point, a value per tuning seed, NaN where it has no run."""
        unknown = Outcome(math.nan, math.nan, False)
        by_seed = {
            self.tuning.label(point): [self.outcomes.get((point, seed), unknown) for seed in self.tuning.seeds]
            for point in order
        }
        values = {name: np.array([outcome.value for outcome in found]) for name, found in by_seed.items()}
        if self.tuning.measure != ROUNDS:
            return Metric(self.tuning.measure, values)
        missed = {name: np.array([float(outcome.missed) for outcome in found]) for name, found in by_seed.items()}
        return Metric(ROUNDS, values, self.tuning.target or 0.0, self.tuning.devices, missed)

    def __repr__(self) -> str:
        best = "not decided" if self.best is None else point_name(self.best)
        return f"<Tuned {len(self.tuning.points)} points on seeds {', '.join(map(str, self.tuning.seeds))}: {best}>"


def tune(tuning: Tuning, out: Path | str, *, jobs: int | None = None, on_step: OnStep | None = None) -> Tuned:
    """Do the runs that successive halving asks for, and write the best point's configuration to `best.toml`.

    Stopped or killed at any time, the same call resumes it. The grid, seeds and measure may change from call to call:
    runs that are there are used again. A run that fails is named in `Tuned.failed`; the best point is then not decided.

    Args:
        tuning: the grid over a configuration, and the tuning seeds.
        out: the folder: new, or that of a tuning of the same configuration.
        jobs: the number of runs at once; default: one per core. It does not change a bit of the results.
        on_step: called after every round and at the end of every run.

    >>> base = {"task": {"clients": 4}, "run": {"rounds": 1}}
    >>> tune(Tuning(base=base, grid={"train.lr": [1e-9, 0.5]}, seeds=2), "runs/tune", jobs=1)
    <Tuned 2 points on seeds 101, 102: lr=0.5>
    """
    out = Path(out)
    seed = make_config(tuning.base).run.seed
    if not tuning.name and seed in tuning.seeds:
        raise ConfigError(
            f"run.seed of the configuration, {seed}, is a tuning seed: the best point looks better there than it is; "
            "choose other tuning seeds, or another run.seed"
        )
    jobs = cores() if jobs is None else jobs
    if jobs < 1:
        raise ConfigError(f"jobs is the number of runs at once, at least 1; got {jobs}")
    check_tuning_folder(tuning, out)
    with Workers(tuning.config(0)) as workers:
        if new := new_points({out: tuning}):
            workers.check(new)
        make_folder(out)
        with held(out, RUNS):
            failed = run_tunings(workers, {out: tuning}, jobs, on_step)
    return replace(read_tuned(tuning, out), failed=failed)


def new_points(tunings: Mapping[Path, Tuning]) -> dict[str, Config]:
    """The configurations of points that have not begun, to be checked against the data."""
    missing = [run for folder, tuning in tunings.items() for run in read_tuned(tuning, folder).missing]
    return {run.row: run.config for run in missing if not run.begun}


def run_tunings(workers: Workers, tunings: Mapping[Path, Tuning], jobs: int, on_step: OnStep | None) -> dict[str, str]:
    """Run tunings in their folders, heat by heat, all at once; the reasons of runs that failed.

    The tuning of a failed run goes no further; the others do. Those that end write their best configuration.
    """
    failed: dict[str, str] = {}
    for folder, tuning in tunings.items():
        make_folder(folder)
        write_tuning(tuning, folder)
    states = [read_tuned(tuning, folder) for folder, tuning in tunings.items()]
    while missing := [run for state in states if not _gave_up(state, failed) for run in state.missing]:
        failed |= run_all(workers, sorted(missing, key=lambda run: run.seed), jobs, on_step)
        states = [read_tuned(state.tuning, state.folder) for state in states]
    for state in states:
        write_best(state)
    return failed


def _gave_up(state: Tuned, failed: Mapping[str, str]) -> bool:
    return any(str(run) in failed for run in state.missing)


def write_best(state: Tuned) -> None:
    """Write the best point's configuration, with a word on where it comes from; nothing while it is not decided."""
    if state.config is None:
        return
    tuning = state.tuning
    grid = [f"#   {key}: {', '.join(map(value_text, values))}" for key, values in tuning.grid.items()]
    head = [
        f"# The best of a grid, by {tuning.about}: {point_name(state.best or {})}",
        *grid,
        f"# Tuned on seeds {', '.join(map(str, tuning.seeds))}: report on others.",
    ]
    write_new_file(state.folder / BEST, "\n".join([*head, dump_config(state.config)]), "another --out")


def read_tuned(tuning: Tuning, folder: Path) -> Tuned:
    """What the finished runs in a folder say about a tuning; none of them is needed."""
    outcomes: dict[tuple[int, int], Outcome] = {}
    halving = halve(tuning, outcomes)
    while halving.missing:
        found = {run: _outcome(tuning, tuning_member(tuning, folder, *run)) for run in halving.missing}
        known = {run: outcome for run, outcome in found.items() if outcome is not None}
        if not known:
            break
        outcomes |= known
        halving = halve(tuning, outcomes)
    return Tuned(tuning, folder, outcomes, halving)


def _outcome(tuning: Tuning, run: Member) -> Outcome | None:
    """The measure of a finished run; rounds to a target that was not reached count as the rounds played."""
    if not run.begun or not run.finished:
        return None
    target, share = tuning.target or 0.0, tuning.devices
    with open_ledger(run.folder) as ledger:
        metrics = read_metrics(ledger, [target], [share])
    rounds = metrics.reached[target, share]
    reached = restricted([math.nan if rounds is None else rounds], run.config.run.rounds)[0]
    value = reached if tuning.measure == ROUNDS else metrics.values.get(tuning.measure, math.nan)
    return Outcome(float(value), metrics.values["accuracy"], rounds is None)


def check_tuning_folder(tuning: Tuning, folder: Path) -> None:
    """Refuse a folder that holds something else, or runs that are not those of the tuning."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / TUNE).is_file():
        raise FolderError(f"{folder} exists and holds no tuning; choose another --out")
    before = read_tuning(folder)
    if changes := differences(make_config(before.base), make_config(tuning.base)):
        raise FolderError(
            f"{folder} holds a tuning of another configuration: {'; '.join(changes)}; choose another --out"
        )
    for point in range(len(tuning.points)):
        for seed in tuning.seeds:
            run = tuning_member(tuning, folder, point, seed)
            if run.begun:
                config_to_resume(run.folder, run.config)
