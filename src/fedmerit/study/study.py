"""A study that was run: its frames, what is unfinished in it, and its table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedmerit.config.schema import make_config
from fedmerit.engine.run import Run
from fedmerit.errors import FolderError, UnknownName
from fedmerit.store.frames import Frame, Line, make_frame, pandas, run_frame
from fedmerit.store.run_folder import BITS_DEPEND_ON, differences, open_ledger
from fedmerit.study.agreement import Agreement, agreement, read_right
from fedmerit.study.compared import compare_rows, of_figures, of_reached
from fedmerit.study.figures import FIGURES, Reading, read
from fedmerit.study.layout import Member, members, read_plan
from fedmerit.study.plan import Plan
from fedmerit.study.statistics import seeds_needed

AGREEMENT = (*Agreement._fields, "neither_if_independent")
STEPS = (1, 2, 5, 10)
"""Differences in rounds for which the needed seeds are told."""


@dataclass(frozen=True, repr=False)
class Study:
    """Rows x seeds in a folder. `unfinished` are the runs that are not done, with the rounds they have played."""

    folder: Path
    plan: Plan
    runs: tuple[Member, ...]
    unfinished: Mapping[str, int]
    failed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> Study:
        """A study from its folder; unfinished runs are reported as such, and do not count."""
        folder = Path(folder)
        plan = read_plan(folder)
        runs = tuple(members(plan, folder))
        _check_runs(runs)
        return cls(folder, plan, runs, {str(one): one.rounds for one in runs if not one.finished})

    def run(self, row: str, seed: int) -> Run:
        """One of its runs, which has finished."""
        found = {(one.row, one.seed): one for one in self.runs}.get((row, seed))
        if found is None:
            raise UnknownName("run of the study", f"{row}, seed {seed}", map(str, self.runs))
        return Run.load(found.folder)

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return [row.name for row in self.plan.rows]

    @property
    def horizon(self) -> int:
        """The rounds of every run."""
        return self.runs[0].config.run.rounds

    @cached_property
    def figures(self) -> Frame:
        """A line per run that was begun: accuracy, best, percentiles, worst tenth, variance, gaps, bytes, seconds;

        with `both`, `only_baseline`, `only_row` and `neither`, the test rows that the final model and the baseline's
        get right, and `neither_if_independent`, their shared errors if these had nothing to do with each other.
        """
        lines = (
            self._about(one) | {"finished": str(one) not in self.unfinished} | reading.figures | self._agreement(one)
            for one, reading in self._readings
        )
        return make_frame(lines, ("row", "seed", "finished", "rounds", *FIGURES, *AGREEMENT)).astype({"finished": bool})

    @cached_property
    def reached(self) -> Frame:
        """A line per finished run, target and share: rounds to target, NaN where not reached within `horizon`."""
        lines = (
            {"row": one.row, "seed": one.seed, "target": target, "share": share, "rounds": rounds}
            | {"horizon": self.horizon}
            for one, reading in self._readings
            if str(one) not in self.unfinished
            for (target, share), rounds in reading.reached.items()
        )
        frame = make_frame(lines, ("row", "seed", "target", "share", "rounds", "horizon"))
        return frame.astype({"rounds": "float64"})

    @cached_property
    def curves(self) -> Frame:
        """A line per run and evaluated round: accuracy and percentiles over clients."""
        lines = ({"row": one.row, "seed": one.seed} | row for one, reading in self._readings for row in reading.curve)
        return make_frame(lines, ("row", "seed", "round", "accuracy", "p10", "p50", "p90"))

    @cached_property
    def compared(self) -> Frame:
        """A line per row and measure: mean, paired difference to the baseline with interval, p, Holm's p, verdict.

        `rounds` are rounds to `target` for a `share` of the devices (NaN: the mean over the shares).
        """
        measures = [*of_figures(self.figures, self.plan), *of_reached(self.reached, self.plan)]
        return compare_rows(measures, self.plan.against)

    @cached_property
    def needed(self) -> Frame:
        """A line per row, target and share: seeds needed to see a difference of 1, 2, 5 and 10 rounds in a t test.

        NaN where the deviation is not known, or past 100,000 seeds.
        """
        found = self.compared
        rounds = found[(found["measure"] == "rounds") & (found["row"] != self.plan.against)]
        steps = {f"for {k}": [seeds_needed(sd, k) or math.nan for sd in rounds["sd"]] for k in STEPS}
        return rounds[["row", "target", "share", "sd"]].assign(**steps).reset_index(drop=True)

    @cached_property
    def events(self) -> Frame:
        """A line per run and event: who was left out and why, notes on the weights."""
        frames = [self._events(one).assign(row=one.row, seed=one.seed) for one in self.runs if one.begun]
        columns = ("row", "seed", "round", "client", "kind", "text")
        return pandas().concat(frames)[list(columns)].reset_index(drop=True) if frames else make_frame((), columns)

    def _events(self, one: Member) -> Frame:
        with open_ledger(one.folder) as ledger:
            return run_frame(ledger, "events")

    @cached_property
    def _readings(self) -> Sequence[tuple[Member, Reading]]:
        return list(self._read())

    def _read(self) -> Iterator[tuple[Member, Reading]]:
        for one in self.runs:
            if one.begun:
                with open_ledger(one.folder) as ledger:
                    yield one, read(ledger, self.plan.targets, self.plan.shares)

    def _about(self, one: Member) -> Line:
        return {"row": one.row, "seed": one.seed, "rounds": self.unfinished.get(str(one), self.horizon)}

    def _agreement(self, one: Member) -> Line:
        """With the baseline's run of the same seed."""
        base = next(run for run in self.runs if (run.row, run.seed) == (self.plan.against, one.seed))
        theirs, ours = read_right(base.right), read_right(one.right)
        if theirs is None or ours is None:
            return {}
        found = agreement(theirs, ours)
        return dict(zip(AGREEMENT, (*found, found.neither_if_independent), strict=True))

    def __repr__(self) -> str:
        done = len(self.runs) - len(self.unfinished)
        state = "all finished" if not self.unfinished else f"{done} of {len(self.runs)} runs finished"
        return f"<Study {self.plan.name}: {len(self.rows)} rows x {len(self.plan.seeds)} seeds, {state}>"

    def _repr_html_(self) -> str:
        from fedmerit.study.tables import summary_table

        return summary_table(self).html()


def _check_runs(runs: Sequence[Member]) -> None:
    """Every run is the one that the plan asks for, and all were made by the same versions of what bits depend on."""
    made: dict[tuple[str, ...], Member] = {}
    for one in runs:
        if not one.begun:
            continue
        with open_ledger(one.folder) as ledger:
            meta = ledger.meta()
        if changed := differences(make_config(json.loads(meta["config"])), one.config):
            raise FolderError(f"{one.folder} is not the run that its study asks for: {'; '.join(changed)}")
        made.setdefault(tuple(f"{name} {meta.get(name)}" for name in BITS_DEPEND_ON), one)
    if len(made) > 1:
        who = "; ".join(f"{one}: {', '.join(versions)}" for versions, one in made.items())
        raise FolderError(f"runs made by different versions cannot be compared: {who}; run the study anew with one")
