"""A study on the screen: progress over all of its runs while it goes on, what it has to say at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedmerit.store.frames import Frame
from fedmerit.study.compare import OnStep
from fedmerit.study.lane import Ended, Played
from fedmerit.study.lanes import Step
from fedmerit.study.layout import Member
from fedmerit.study.study import Study
from fedmerit.study.tables import study_tables

QUIET = ("initial",)
"""Events that need no reader's attention."""


@contextmanager
def progress(console: Console, runs: Sequence[Member]) -> Iterator[OnStep]:
    """One bar over the rounds of all runs on a terminal, a plain line per ended run elsewhere; both with an ETA."""
    account = _Account(runs)
    if not console.is_terminal:
        yield lambda step: _line(console, account, step)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    times = [TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn()]
    with Progress(*columns, TextColumn("{task.fields[state]}"), *times, console=console) as bar:
        task = bar.add_task(account.runs, total=account.total, completed=account.done, state="")

        def advance(step: Step) -> None:
            account(step)
            if isinstance(step.answer, Ended) and step.answer.failed:
                console.print(f"[red]{escape(str(step.member))} failed: {escape(step.answer.failed)}[/]")
            bar.update(task, description=account.runs, completed=account.done, state=escape(_state(step)))

        yield advance


class _Account:
    """How many rounds are done of how many, over all runs; by folder, as parts of a study have runs of one name."""

    def __init__(self, runs: Sequence[Member]) -> None:
        self._rounds = {one.folder: one.rounds for one in runs}
        self._ended = {one.folder for one in runs if one.complete}
        self.total, self._number = sum(one.config.run.rounds for one in runs), len(runs)
        self._before, self._began = self.done, monotonic()

    def __call__(self, step: Step) -> None:
        if isinstance(step.answer, Played):
            self._rounds[step.member.folder] = step.answer.round
        elif not step.answer.stopped:
            self._ended.add(step.member.folder)

    @property
    def done(self) -> int:
        """Rounds played, by earlier calls too."""
        return sum(self._rounds.values())

    @property
    def runs(self) -> str:
        """Runs that have ended."""
        return f"{len(self._ended)} of {self._number} runs"

    @property
    def remaining(self) -> str:
        """By the pace of the rounds so far, as h:mm:ss."""
        now = self.done - self._before
        seconds = (monotonic() - self._began) / now * (self.total - self.done) if now else 0
        return str(timedelta(seconds=round(seconds)))


def _state(step: Step) -> str:
    if isinstance(step.answer, Ended):
        return f"{step.member} {_how(step.answer)}"
    accuracy = "" if step.answer.accuracy is None else f" accuracy {step.answer.accuracy:.4f}"
    return f"{step.member}, round {step.answer.round}{accuracy}"


def _how(answer: Ended) -> str:
    return "stopped" if answer.stopped else f"failed: {answer.failed}" if answer.failed else "done"


def _line(console: Console, account: _Account, step: Step) -> None:
    account(step)
    if isinstance(step.answer, Ended):
        text = f"{account.runs}: {step.member} {_how(step.answer)}, ETA {account.remaining}"
        console.print(text, markup=False, soft_wrap=True)


def ending(study: Study) -> Iterator[RenderableType]:
    """Tables, then what else the user should know."""
    for table in study_tables(study):
        yield table.screen()
        yield ""
    for row, kind, text, runs in _notes(study):
        yield f"[yellow]{escape(row)}: {escape(text)} ({escape(kind)}, in {runs} of {len(study.plan.seeds)} seeds)[/]"
    for label, reason in study.failed.items():
        yield f"[red]{escape(label)} failed: {escape(reason)}[/]"


def _notes(study: Study) -> Iterator[tuple[str, str, str, int]]:
    """Each kind of note once per row, with its first text and the number of runs in which it occurs."""
    told = study.events[~study.events["kind"].isin(QUIET)]
    for (row, kind), events in told.groupby(["row", "kind"], sort=False):
        first = events.iloc[0]
        yield str(row), str(kind), f"round {first['round']}: {first['text']}", int(events["seed"].nunique())


def as_json(study: Study) -> str:
    """The study for machines: who was compared with whom, all comparisons, rounds to target, what is missing."""
    return json.dumps(
        {
            "study": study.plan.name,
            "folder": str(study.folder),
            "baseline": study.plan.against,
            "seeds": study.plan.seeds,
            "compared": _records(study.compared),
            "reached": _records(study.reached),
            "figures": _records(study.figures),
            "unfinished": dict(study.unfinished),
            "failed": dict(study.failed),
        }
    )


def _records(frame: Frame) -> list[dict[str, Any]]:
    """NaN becomes null: JSON has no NaN."""
    lines: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return lines
