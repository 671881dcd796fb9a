"""Compare: all runs of a study, as many at once as there are cores; stopped at any time, it goes on where it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from fedmerit.config.schema import Config
from fedmerit.core.system import cores
from fedmerit.engine.loop import Stopping
from fedmerit.engine.run import GIB
from fedmerit.errors import ConfigError, RunStopped
from fedmerit.fleet.local import quarter_of_ram
from fedmerit.store.run_folder import held
from fedmerit.study.lane import Ended
from fedmerit.study.lanes import Lanes, Step
from fedmerit.study.layout import RUNS, Member, check_folder, make_folder, members, write_plan
from fedmerit.study.plan import Plan
from fedmerit.study.study import Study

OnStep: TypeAlias = Callable[[Step], None]


def compare(plan: Plan, out: Path | str, *, jobs: int | None = None, on_step: OnStep | None = None) -> Study:
    """Do what is left of a study's runs in a folder, `jobs` at once (default: one per core); the study as it is then.

    A run that fails is named in `Study.failed`, and the others go on.
    """
    out, jobs = Path(out), cores() if jobs is None else jobs
    if jobs < 1:
        raise ConfigError(f"jobs is the number of runs at once, at least 1; got {jobs}")
    check_folder(plan, out)
    left = [one for one in members(plan, out) if not one.complete]
    if not left:
        write_plan(plan, out)
        return Study.load(out)
    with Lanes(left[0].config) as lanes:
        new: dict[str, Config] = {}
        for one in left:
            if not one.begun:
                new.setdefault(one.row, one.config)  # of its first seed, whose data the first run needs too
        if new:
            lanes.check(new)
        make_folder(out)
        with held(out, RUNS):
            write_plan(plan, out)
            failed = _do(lanes, left, jobs, on_step)
    return replace(Study.load(out), failed=failed)


def shared_out(runs: int, jobs: int, most: int | None = None) -> list[int]:
    """The workers of each run, in order: one, but the last few, which would leave cores idle, share all cores.

    `most` is the number of workers of which the user says that more do not pay.
    """
    rest = runs % jobs
    return [1] * (runs - rest) + [min(jobs // rest, most or jobs) for _ in range(rest)]


def _do(lanes: Lanes, left: Sequence[Member], jobs: int, on_step: OnStep | None) -> dict[str, str]:
    """All runs; the reasons of those that failed."""
    workers = shared_out(len(left), jobs, left[0].config.run.workers)
    waiting, ended = deque(zip(left, workers, strict=True)), dict[str, Ended]()
    with Stopping() as stopping:
        while waiting or lanes.load:
            if stopping.asked:
                waiting.clear()
                lanes.stop()
            while waiting and lanes.load + waiting[0][1] <= jobs:
                member, number = waiting.popleft()
                lanes.give(member, _settled(member.config, number, jobs), number)
            for step in lanes.steps():
                if isinstance(step.answer, Ended):
                    ended[str(step.member)] = step.answer
                if on_step:
                    on_step(step)
    done = sum(not answer.stopped for answer in ended.values())
    if done < len(left):
        raise RunStopped(f"stopped with {len(left) - done} of {len(left)} runs to go")
    return {member: answer.failed for member, answer in ended.items() if answer.failed}


def _settled(config: Config, workers: int, jobs: int) -> Config:
    """With the run's workers, and its part of the memory for updates, which is the whole study's."""
    memory = (config.run.memory or quarter_of_ram() / GIB) * workers / jobs
    return config.model_copy(update={"run": config.run.model_copy(update={"workers": workers, "memory": memory})})
