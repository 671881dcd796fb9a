"""A study: run it (`compare`), and read what it found (`Study`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from fedmerit.config.schema import Config, make_config
from fedmerit.core.system import cores
from fedmerit.engine.finished import Run
from fedmerit.engine.sinks import check_logs
from fedmerit.errors import ConfigError, FolderError, UnknownName
from fedmerit.store.frames import Frame, make_frame, pandas, run_frame
from fedmerit.store.run_folder import BITS_DEPEND_ON, differences, held, open_ledger
from fedmerit.study.attacks import attack_frame, read_attack_metrics, read_success
from fedmerit.study.metrics import METRICS, RunMetrics, read_metrics
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


def compare(
    plan: Plan,
    out: Path | str,
    *,
    jobs: int | None = None,
    on_step: OnStep | None = None,
    log: Sequence[str] = (),
) -> Study:
    """Do the runs of a study that are not finished, and read the study.

    Rows with a grid are tuned first, on the tuning seeds; their best points are then run like the other rows.
    Stopped or killed at any time, the same call resumes it. A run that fails is named in `Study.failed`, and does not
    keep the others from finishing.

    Args:
        plan: rows and seeds, from `load_plan`.
        out: the study's folder: new, or the folder of the same study, which may grow by rows and seeds.
        jobs: the number of runs at once; default: one per core. It does not change a bit of the results.
        on_step: called after every round and at the end of every run.
        log: sinks that get every round of every run, tunings aside, as NAME:WHERE (docs/watch.md).

    >>> from fedmerit.study.plan import make_plan
    >>> base = {"task": {"clients": 4}, "run": {"rounds": 1}}
    >>> rows = [{"name": "FedAvg"}, {"name": "LD", "recipe": {"name": "prioritized", "criteria": "LD"}}]
    >>> compare(make_plan({"seeds": 1, "base": base, "row": rows}), "runs/study", jobs=1)
    <Study study: 2 rows x 1 seeds, all finished>
    """
    out, jobs = Path(out), cores() if jobs is None else jobs
    if jobs < 1:
        raise ConfigError(f"jobs is the number of runs at once, at least 1; got {jobs}")
    check_logs(log)
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
            new.setdefault(member.row, member.config)  # with the row's first seed: its first run needs that data too
    with Workers(remaining[0].config) as workers:
        if new:
            workers.check(new)
        make_folder(out)
        with held(out, RUNS):
            write_plan(plan, out)
            for row in to_tune:
                place = tuning_folder(out, row)
                make_folder(place)
                (place / BEST).unlink(missing_ok=True)
                write_plan(plan.tuning(row), place)
            failed = run_all(workers, points, jobs, on_step) if points else {}
            for row in to_tune:
                read_tuned(plan, row, out).write_best()
            undecided = [row.name for row in plan.tuned if best_config(plan, row, out) is None]
            ready = [run for run in members(plan, out) if not run.complete and run.row not in undecided]
            failed |= run_all(workers, ready, jobs, on_step, log) if ready else {}
    return replace(Study.load(out), failed=failed)


def read_tuned(plan: Plan, row: Row, folder: Path) -> Tuned:
    """The tuning of a row of the study in a folder, as far as it got."""
    return Tuned(row, plan.tune, read_study(plan.tuning(row), tuning_folder(folder, row)))


@dataclass(frozen=True, repr=False)
class Study:
    """A study in its folder: rows x seeds, as pandas frames.

    Its frames are `compared`, `metrics`, `reached`, `curves`, `events`, `attacks` and `tuning`
    (docs/study.md).

    `runs` are all runs of the plan, `unfinished` those that are not done, with the rounds they have played, and
    `failed` those that failed in this call of `compare`, with the reason.

    >>> from fedmerit.study.plan import make_plan
    >>> make_folder(Path("runs/study"))
    >>> write_plan(make_plan({"seeds": 5, "row": [{"name": "FedAvg"}]}), Path("runs/study"))
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
        """Read a study from its folder; unfinished runs are listed in `unfinished` and not compared."""
        return read_study(read_plan(Path(folder)), Path(folder))

    def run(self, row: str, seed: int) -> Run:
        """One of its finished runs."""
        member = {(run.row, run.seed): run for run in self.runs}.get((row, seed))
        if member is None:
            raise UnknownName("run of the study", f"{row}, seed {seed}", map(str, self.runs))
        return Run.load(member.folder)

    def report(self, path: Path | str, *, force: bool = False) -> Path:
        """The study as one HTML file that opens offline: verdict, curves, weights, reasons; its path."""
        import_module("fedmerit.report.html").write_report(
            [self.folder], Path(path), force=force
        )  # builds on this room
        return Path(path)

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return [row.name for row in self.plan.rows]

    @property
    def horizon(self) -> int:
        """The rounds of every run."""
        return self.runs[0].config.run.rounds

    @cached_property
    def tunings(self) -> Mapping[str, Tuned]:
        """The tuning of each row that has a grid, as far as it got."""
        return {row.name: read_tuned(self.plan, row, self.folder) for row in self.plan.tuned}

    @cached_property
    def tuning(self) -> Frame:
        """A line per tuned row and point, as `Tuned.points` has them; empty where no row has a grid."""
        frames = [tuned.points for tuned in self.tunings.values()]
        columns = ("row", "point", *COLUMNS[1:])
        return pandas().concat(frames)[list(columns)].reset_index(drop=True) if frames else make_frame((), columns)

    @cached_property
    def metrics(self) -> Frame:
        """A line per run that was begun: accuracy, best, percentiles, worst tenth, variance, gaps, bytes, seconds.

        Runs with attackers have the metrics of `fedmerit.study.attacks`.
        """
        lines = (
            {"row": run.row, "seed": run.seed, "rounds": self._played(run, metrics)}
            | {"finished": str(run) not in self.unfinished}
            | metrics.values
            for run, metrics in self._metrics
        )
        columns = ("row", "seed", "finished", "rounds", *METRICS, "best_round")
        return make_frame(lines, columns).astype({"finished": bool})

    def _played(self, run: Member, metrics: RunMetrics) -> int:
        """Rounds of a run; one that is finished may have stopped early, after a round that it tested."""
        finished = int(metrics.curve[-1]["round"]) if metrics.curve else self.horizon
        return self.unfinished.get(str(run), finished)

    @cached_property
    def reached(self) -> Frame:
        """A line per finished run, target and share: rounds to target, NaN where not reached within `horizon`."""
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
        """A line per run and evaluated round: accuracy and percentiles over clients."""
        lines = ({"row": run.row, "seed": run.seed} | line for run, metrics in self._metrics for line in metrics.curve)
        return make_frame(lines, ("row", "seed", "round", "accuracy", "p10", "p50", "p90"))

    @cached_property
    def compared(self) -> Frame:
        """A line per row and measure: mean, paired difference to the baseline with interval, p, Holm's p, verdict.

        `rounds` are rounds to `target` for a `share` of the devices (NaN: the mean over the shares).
        """
        metrics = [*metrics_of_runs(self.metrics, self.plan), *rounds_metrics(self.reached, self.plan)]
        return compare_rows(metrics, self.plan.against)

    @cached_property
    def attacks(self) -> Frame:
        """A line per row with attackers: its accuracy, the accuracy lost to the attack, the attackers' success."""
        return attack_frame(self.plan, self.metrics)

    @cached_property
    def events(self) -> Frame:
        """A line per run and event: who was left out and why, notes on the weights."""
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
                    read = read_metrics(ledger, self.plan.targets, self.plan.shares, or_equal=self.plan.or_equal)
                    if run.config.task.attack:
                        read.values.update(read_attack_metrics(ledger, run.config, read_success(run.success)))
                    yield run, read

    def __repr__(self) -> str:
        done = len(self.runs) - len(self.unfinished)
        state = "all finished" if not self.unfinished else f"{done} of {len(self.runs)} runs finished"
        return f"<Study {self.plan.name}: {len(self.rows)} rows x {len(self.plan.seeds)} seeds, {state}>"

    def _repr_html_(self) -> str:
        from fedmerit.study.tables import summary_table

        return summary_table(self).html()


def read_study(plan: Plan, folder: Path) -> Study:
    """What the runs in a folder say about a plan; none of them is needed."""
    runs = tuple(members(plan, folder))
    _check_runs(runs)
    return Study(folder, plan, runs, {str(run): run.rounds for run in runs if not run.finished})


def _events(run: Member) -> Frame:
    with open_ledger(run.folder) as ledger:
        return run_frame(ledger, "events")


def _check_runs(runs: Sequence[Member]) -> None:
    """Refuse runs that differ from the plan, or that were made by different versions of what their bits depend on."""
    by_versions: dict[tuple[str, ...], Member] = {}
    for run in runs:
        if not run.begun:
            continue
        with open_ledger(run.folder) as ledger:
            meta = ledger.meta()
        if changes := differences(make_config(json.loads(meta["config"])), run.config):
            raise FolderError(f"{run.folder} is not the run that its study asks for: {'; '.join(changes)}")
        by_versions.setdefault(tuple(f"{name} {meta.get(name)}" for name in BITS_DEPEND_ON), run)
    if len(by_versions) > 1:
        runs_made = "; ".join(f"{run}: {', '.join(versions)}" for versions, run in by_versions.items())
        raise FolderError(
            f"runs made by different versions cannot be compared: {runs_made}; run the whole study again with one"
        )
