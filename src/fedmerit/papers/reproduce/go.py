"""Going: all studies of a reproduction, one after the other, to be stopped and gone on with; then what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from fedmerit.errors import FolderError, RunStopped
from fedmerit.papers.reproduce.entry import WHOLE, Reproduction, Setting, Studies, Told
from fedmerit.store.files import write_new_file
from fedmerit.study.plan import Plan
from fedmerit.study.scheduler import OnStep
from fedmerit.study.study import Study, compare
from fedmerit.study.study_folder import Member, check_folder, members

CLOCK = "seconds.txt"
Watch = Callable[[list[Member]], AbstractContextManager[OnStep]]
"""Given all runs: what is told of each step while they go on."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A reproduction that was run: its studies, what they say, and the seconds of all calls."""

    reproduction: Reproduction
    scale: str
    setting: Setting
    studies: Studies
    told: Told
    seconds: float

    @property
    def unfinished(self) -> dict[str, str]:
        """Runs that were begun, and how far they are."""
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
    """Parts have runs of the same names."""
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
    """Run what is left in the folder, then tell; the pictures go to the folder too."""
    began = monotonic()
    check_parts(plans, out)
    runs = [run for part, plan in plans.items() for run in members(plan, out / part)]
    try:
        with watch(runs) if watch else nullcontext() as on_step:
            studies = {part: compare(plan, out / part, jobs=jobs, on_step=on_step) for part, plan in plans.items()}
    except RunStopped:
        _clock(out, monotonic() - began)
        raise
    return _told(reproduction, scale, studies, out, _clock(out, monotonic() - began))


def so_far(reproduction: Reproduction, scale: str, plans: Mapping[str, Plan], out: Path) -> Reproduced:
    """What a folder holds, finished or not, with nothing run."""
    for part, plan in plans.items():
        check_folder(plan, out / part)
    studies = {part: Study.load(out / part) for part in plans}
    return _told(reproduction, scale, studies, out, _clock(out, 0.0))


def _told(reproduction: Reproduction, scale: str, studies: Studies, out: Path, seconds: float) -> Reproduced:
    setting = reproduction.setting(scale)
    told = reproduction.tell(setting, studies)
    for name, picture in told.figures.items():
        write_new_file(out / f"{name}.svg", picture)
    return Reproduced(reproduction, scale, setting, studies, told, seconds)


def _clock(out: Path, seconds: float) -> float:
    """The seconds of all calls for this folder that ended or were stopped, this one included; kept in the folder."""
    path = out / CLOCK
    try:
        before = float(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = 0.0
    write_new_file(path, f"{before + seconds:.1f}\n", "another --out")
    return before + seconds


def check_parts(plans: Mapping[str, Plan], out: Path) -> None:
    """Refuse a folder of several studies that holds something else; `compare` looks at each study's own."""
    if len(plans) == 1 or not out.is_dir():
        return
    others = sorted(path.name for path in out.iterdir() if path.name not in (*plans, CLOCK) and path.suffix != ".svg")
    if others:
        raise FolderError(f"{out} holds something else: {', '.join(others[:5])}; choose another --out")
