"""Runner: runs all studies of a reproduction one after the other, resumes where it was stopped, makes the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from fedmerit.errors import FolderError, RunStopped
from fedmerit.store.files import write_new_file
from fedmerit.study.plan import Plan
from fedmerit.study.study import Study, compare
from fedmerit.study.study_folder import Member, check_folder, members
from fedmerit.study.workers import OnStep
from reproductions.reproduce.reproduction import WHOLE, Reproduction, Result, Setting, Studies

CLOCK = "seconds.txt"
"""A file in the folder with the seconds of all calls so far."""
Watch = Callable[[list[Member]], AbstractContextManager[OnStep]]
"""Given all runs, a context that gives the function to call after each step."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A reproduction that was run, completely or in part: its studies, their result, the seconds of all calls."""

    reproduction: Reproduction
    scale: str
    setting: Setting
    studies: Studies
    result: Result
    seconds: float

    @property
    def unfinished(self) -> dict[str, str]:
        """Runs that were started but not finished, and how far they got."""
        return {
            _in_part(part, run): f"{rounds:,} of {study.horizon:,} rounds"
            for part, study in self.studies.items()
            for run, rounds in study.unfinished.items()
            if rounds
        }

    @property
    def failed(self) -> dict[str, str]:
        """Runs that failed, and why."""
        return {_in_part(part, run): why for part, study in self.studies.items() for run, why in study.failed.items()}


def _in_part(part: str, run: str) -> str:
    """A run's name that is unique over all parts."""
    return run if part == WHOLE else f"{part}: {run}"


def reproduce(
    reproduction: Reproduction,
    scale: str,
    plans: Mapping[str, Plan],
    out: Path,
    *,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Reproduced:
    """Run what the folder lacks, then make tables and pictures; the pictures are written to the folder too."""
    began = monotonic()
    check_parts(plans, out)
    runs = [run for part, plan in plans.items() for run in members(plan, out / part)]
    try:
        with watch(runs) if watch else nullcontext() as on_step:
            studies = {part: compare(plan, out / part, jobs=jobs, on_step=on_step) for part, plan in plans.items()}
    except RunStopped:
        _add_seconds(out, monotonic() - began)
        raise
    return _reproduced(reproduction, scale, studies, out, _add_seconds(out, monotonic() - began))


def so_far(reproduction: Reproduction, scale: str, plans: Mapping[str, Plan], out: Path) -> Reproduced:
    """What a folder holds, finished or not; runs nothing."""
    for part, plan in plans.items():
        check_folder(plan, out / part, resume=False)
    studies = {part: Study.load(out / part) for part in plans}
    return _reproduced(reproduction, scale, studies, out, _add_seconds(out, 0.0))


def _reproduced(reproduction: Reproduction, scale: str, studies: Studies, out: Path, seconds: float) -> Reproduced:
    setting = reproduction.setting(scale)
    result = reproduction.make_result(setting, studies)
    for name, picture in result.figures.items():
        write_new_file(out / f"{name}.svg", picture)
    return Reproduced(reproduction, scale, setting, studies, result, seconds)


def _add_seconds(out: Path, seconds: float) -> float:
    """Add the seconds of this call to those of earlier calls for this folder, finished or stopped; gives the sum."""
    path = out / CLOCK
    try:
        before = float(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = 0.0
    write_new_file(path, f"{before + seconds:.1f}\n", "another --out")
    return before + seconds


def check_parts(plans: Mapping[str, Plan], out: Path) -> None:
    """Refuse a folder for several studies that holds something else; `compare` checks the folder of each study."""
    if len(plans) == 1 or not out.is_dir():
        return
    others = sorted(path.name for path in out.iterdir() if path.name not in (*plans, CLOCK) and path.suffix != ".svg")
    if others:
        raise FolderError(f"{out} holds something else: {', '.join(others[:5])}; choose another --out")
