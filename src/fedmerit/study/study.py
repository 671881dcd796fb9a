"""Run a study (`compare`), and read its results (`Study`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from fedmerit.config.schema import Config, make_config
from fedmerit.core.objectives import direction
from fedmerit.core.system import cores
from fedmerit.core.types import ACCURACY
from fedmerit.engine.finished import Run
from fedmerit.errors import ConfigError, FolderError, UnknownName
from fedmerit.store.frames import Frame, make_frame, pandas, run_frame
from fedmerit.store.run_folder import BITS_DEPEND_ON, differences, held, open_ledger
from fedmerit.study.attacks import attack_frame, read_attack_metrics, read_measured
from fedmerit.study.metrics import RunMetrics, metric_names, read_metrics
from fedmerit.study.plan import Plan, Row
from fedmerit.study.study_folder import (
    BEST,
    RUNS,
    Member,
    best_config,
    check_folder,
    make_folder,
    members,
    read_plan,
    tuning_folder,
    write_plan,
)
from fedmerit.study.tuning import Tuned
from fedmerit.study.verdicts import COLUMNS, compare_rows, metrics_of_runs, rounds_metrics
from fedmerit.study.workers import OnStep, Workers, run_all
from fedmerit.study.worth import worth_frame


def compare(
    plan: Plan,
    out: Path | str,
    *,
    jobs: int | None = None,
    on_step: OnStep | None = None,
) -> Study:
    """Run the unfinished runs of a study and return the study.

    plan        rows and seeds, from `load_plan`
    out         the study's folder: new, or the folder of the same study, which may have gained rows and seeds
    jobs        the number of parallel runs; default: one per core. It does not change the results
    on_step     called after each round and at the end of each run

    Rows with a grid are tuned first, on the tuning seeds, and their best points are run like the other rows. The same
    call resumes a study that was stopped. A run that fails is listed in `Study.failed`; the others still finish.

    >>> from fedmerit.study.plan import make_plan
    >>> base = {"task": {"clients": 4}, "run": {"rounds": 1}}
    >>> diversity = {"name": "prioritized", "criteria": "LD"}
    >>> rows = [{"name": "FedAvg"}, {"name": "LD", "recipe": diversity}]
    >>> compare(make_plan({"seeds": 1, "base": base, "row": rows}), "runs/study", jobs=1)
    <Study study: 2 rows x 1 seeds, all finished>
    """
    out, jobs = Path(out), cores() if jobs is None else jobs
    if jobs < 1:
        raise ConfigError(f"jobs, the number of parallel runs, must be at least 1 (got {jobs})")
    check_folder(plan, out)
    to_tune = [row for row in plan.tuned if best_config(plan, row, out) is None]
    points = [point for row in to_tune for point in members(plan.tuning(row), tuning_folder(out, row))]
    points = sorted((point for point in points if not point.complete), key=lambda point: point.seed)
    remaining = [member for member in members(plan, out) if not member.complete]
    if not remaining:
        write_plan(plan, out)
        return Study.load(out)
    new: dict[str, Config] = {}
    for member in (*points, *remaining):
        if not member.begun:
            new.setdefault(member.row, member.config)  # the first seed, whose data the first run also needs
    with Workers(remaining[0].config) as workers:
        with suppress(ImportError):  # pandas is optional
            import_module("scipy.stats")  # for the tables at the end, while the workers load torch
            import_module("pandas")
        measure = next((_measure(run) for run in (*points, *members(plan, out)) if run.begun), "")
        checked = workers.check(new) if new else ""
        measure = measure or checked
        make_folder(out)
        with held(out, RUNS):
            write_plan(plan, out)
            for row in to_tune:
                place = tuning_folder(out, row)
                make_folder(place)
                (place / BEST).unlink(missing_ok=True)
                write_plan(plan.tuning(row), place)
            failed = run_all(workers, points, jobs, on_step, measure=measure) if points else {}
            for row in to_tune:
                read_tuned(plan, row, out).write_best()
            undecided = [row.name for row in plan.tuned if best_config(plan, row, out) is None]
            ready = [run for run in members(plan, out) if not run.complete and run.row not in undecided]
            failed |= run_all(workers, ready, jobs, on_step, measure) if ready else {}
    return replace(Study.load(out), failed=failed)


def read_tuned(plan: Plan, row: Row, folder: Path) -> Tuned:
    """Read the tuning of a row, finished or not."""
    return Tuned(row, plan.tune, read_study(plan.tuning(row), tuning_folder(folder, row)))


@dataclass(frozen=True, repr=False)
class Study:
    """Results of a study, rows x seeds, as pandas frames; read from its folder by `Study.load`.

    folder      the study's folder
    plan        rows and seeds
    runs        all runs of the plan
    unfinished  runs that are not finished, and the number of rounds that each has
    failed      runs that failed in this call of `compare`, and the reason

    The frames are `compared`, `metrics`, `reached`, `curves`, `worth`, `events`, `attacks` and `tuning`
    (docs/compare.md).

    >>> from fedmerit.study.plan import make_plan
    >>> make_folder(Path("runs/study"))
    >>> plan = make_plan({"seeds": 5, "row": [{"name": "FedAvg"}]})
    >>> write_plan(plan, Path("runs/study"))
    >>> Study.load("runs/study")
    <Study study: 1 rows x 5 seeds, 0 of 5 runs finished>
    """

    folder: Path
    plan: Plan
    runs: tuple[Member, ...]
    unfinished: Mapping[str, int]
    failed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> Study:
        """Load a study from its folder; unfinished runs are listed in `unfinished` and not compared."""
        return read_study(read_plan(Path(folder)), Path(folder))

    def run(self, row: str, seed: int) -> Run:
        """Load a finished run of the study."""
        member = {(run.row, run.seed): run for run in self.runs}.get((row, seed))
        if member is None:
            raise UnknownName("run of the study", f"{row}, seed {seed}", map(str, self.runs))
        return Run.load(member.folder)

    def report(self, path: Path | str, *, force: bool = False) -> Path:
        """Write an HTML report that opens offline, with verdicts, curves, weights and reasons; return its path."""
        page = import_module("fedmerit.report.html")  # a lazy import, because the report imports this module
        page.write_report([self.folder], Path(path), force=force)
        return Path(path)

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return [row.name for row in self.plan.rows]

    @property
    def horizon(self) -> int:
        """The number of rounds of every run."""
        return self.runs[0].config.run.rounds

    @cached_property
    def measure(self) -> str:
        """What the runs are judged by: an objective, the same in all runs."""
        begun = (_measure(run) for run in self.runs if run.begun)
        return next(begun, self.runs[0].config.run.measure or ACCURACY)

    @property
    def targets(self) -> tuple[float, ...]:
        """Targets of the measure; an error has none unless the plan sets them."""
        default = "targets" not in self.plan.model_fields_set
        return () if default and direction(self.measure) < 0 else self.plan.targets

    @cached_property
    def tunings(self) -> Mapping[str, Tuned]:
        """The tuning of each row that has a grid, finished or not."""
        return {row.name: read_tuned(self.plan, row, self.folder) for row in self.plan.tuned}

    @cached_property
    def tuning(self) -> Frame:
        """A line per tuned row and point (`Tuned.points`); empty if no row has a grid."""
        frames = [tuned.points for tuned in self.tunings.values()]
        columns = ("row", "point", *COLUMNS[1:])
        return pandas().concat(frames)[list(columns)].reset_index(drop=True) if frames else make_frame((), columns)

    @cached_property
    def metrics(self) -> Frame:
        """A line per started run: measure, accuracy, best, percentiles, worst tenth, variance, gaps, bytes, seconds.

        Runs with attackers also have the metrics of `fedmerit.study.attacks`.
        """
        lines = (
            {"row": run.row, "seed": run.seed, "rounds": self._played(run, metrics)}
            | {"finished": str(run) not in self.unfinished}
            | metrics.values
            for run, metrics in self._metrics
        )
        columns = ("row", "seed", "finished", "rounds", *metric_names(self.measure), "best_round")
        return make_frame(lines, columns).astype({"finished": bool})

    def _played(self, run: Member, metrics: RunMetrics) -> int:
        """The number of rounds of a run; a finished run may have stopped early, after an evaluated round."""
        finished = int(metrics.curve[-1]["round"]) if metrics.curve else self.horizon
        return self.unfinished.get(str(run), finished)

    @cached_property
    def reached(self) -> Frame:
        """A line per finished run, target and share: rounds to target, NaN if not reached within `horizon`."""
        lines = (
            {"row": run.row, "seed": run.seed, "target": target, "share": share, "rounds": rounds}
            | {"horizon": self.horizon}
            for run, metrics in self._metrics
            if str(run) not in self.unfinished
            for (target, share), rounds in metrics.reached.items()
        )
        frame = make_frame(lines, ("row", "seed", "target", "share", "rounds", "horizon"))
        return frame.astype({"rounds": "float64"})

    @cached_property
    def curves(self) -> Frame:
        """A line per run and evaluated round: the measure and its percentiles over clients."""
        lines = ({"row": run.row, "seed": run.seed} | line for run, metrics in self._metrics for line in metrics.curve)
        return make_frame(lines, ("row", "seed", "round", self.measure, "p10", "p50", "p90"))

    @cached_property
    def compared(self) -> Frame:
        """A line per row and measure: mean, paired difference to the baseline, interval, p, Holm's p, verdict.

        The measure `rounds` is rounds to `target` for a `share` of the clients (NaN: the mean over the shares).
        """
        metrics = [
            *metrics_of_runs(self.metrics, self.plan, self.measure),
            *rounds_metrics(self.reached, self.plan, self.targets),
        ]
        return compare_rows(metrics, self.plan.against)

    @cached_property
    def attacks(self) -> Frame:
        """A line per row with attackers: accuracy, accuracy lost to the attack, success of the attackers."""
        return attack_frame(self.plan, self.metrics)

    @cached_property
    def worth(self) -> Frame:
        """A line per client and reference row (`alone`, `pooled`): the measure of both, and the gain."""
        return worth_frame(self)

    @cached_property
    def local(self) -> Mapping[tuple[str, int], Mapping[str, float]]:
        """The measure of each client after the last round, by row and seed."""
        return {(run.row, run.seed): metrics.local for run, metrics in self._metrics}

    @cached_property
    def events(self) -> Frame:
        """A line per run and event: clients left out with the reason, notes on the weights."""
        frames = [_events(run).assign(row=run.row, seed=run.seed) for run in self.runs if run.begun]
        columns = ("row", "seed", "round", "client", "kind", "text")
        return pandas().concat(frames)[list(columns)].reset_index(drop=True) if frames else make_frame((), columns)

    @cached_property
    def _metrics(self) -> Sequence[tuple[Member, RunMetrics]]:
        return list(self._read_metrics())

    def _read_metrics(self) -> Iterator[tuple[Member, RunMetrics]]:
        for run in self.runs:
            if run.begun:
                with open_ledger(run.folder) as ledger:
                    read = read_metrics(ledger, self.targets, self.plan.shares, or_equal=self.plan.or_equal)
                    if run.config.task.attack:
                        read.values.update(read_attack_metrics(ledger, run.config, read_measured(run.success)))
                    yield run, read

    def __repr__(self) -> str:
        done = len(self.runs) - len(self.unfinished)
        state = "all finished" if not self.unfinished else f"{done} of {len(self.runs)} runs finished"
        return f"<Study {self.plan.name}: {len(self.rows)} rows x {len(self.plan.seeds)} seeds, {state}>"

    def _repr_html_(self) -> str:
        from fedmerit.study.tables import summary_table

        return summary_table(self).html()


def read_study(plan: Plan, folder: Path) -> Study:
    """Make the study of a plan from the runs in a folder; all runs may be missing."""
    runs = tuple(members(plan, folder))
    _check_runs(runs)
    return Study(folder, plan, runs, {str(run): run.rounds for run in runs if not run.finished})


def _measure(run: Member) -> str:
    with open_ledger(run.folder) as ledger:
        return ledger.measure


def _events(run: Member) -> Frame:
    with open_ledger(run.folder) as ledger:
        return run_frame(ledger, "events")


def _check_runs(runs: Sequence[Member]) -> None:
    """Raise a FolderError if runs differ from the plan, or were made by different versions of the software."""
    by_versions: dict[tuple[str, ...], Member] = {}
    for run in runs:
        if not run.begun:
            continue
        with open_ledger(run.folder) as ledger:
            meta = ledger.meta()
        if changes := differences(make_config(json.loads(meta["config"])), run.config):
            raise FolderError(
                f"{run.folder} differs from the run of its study: {'; '.join(changes)}; remove it and run "
                "`fedmerit compare` again"
            )
        by_versions.setdefault(tuple(f"{name} {meta.get(name)}" for name in BITS_DEPEND_ON), run)
    if len(by_versions) > 1:
        runs_made = "; ".join(f"{run}: {', '.join(versions)}" for versions, run in by_versions.items())
        raise FolderError(
            f"runs of different versions cannot be compared: {runs_made}; run the whole study with one version"
        )
