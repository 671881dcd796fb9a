"""Reproductions on the screen: what there is with its time, what is about to start, what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fedmerit.papers.reproduce import REPRODUCTIONS
from fedmerit.papers.reproduce.entry import SCALES, SEEDS, Reproduction, expected, lasting
from fedmerit.papers.reproduce.go import Reproduced


def listing() -> list[dict[str, str]]:
    """Every name with its time at each scale, with five seeds on the cores of this machine."""
    return [
        {"name": one.name, "about": one.about}
        | {scale: lasting(expected(one.plans(scale), one.setting(scale))) for scale in SCALES}
        for one in REPRODUCTIONS.values()
    ]


def list_screen() -> Iterator[RenderableType]:
    """The same for people: times side by side, then what each is, at the full width of the screen."""
    lines = listing()
    times = Table("", *SCALES, title=f"Time with {SEEDS} seeds on these cores", box=SIMPLE_HEAD, title_justify="left")
    for line in lines:
        times.add_row(line["name"], *(line[scale].removeprefix("about ") for scale in SCALES))
    yield times
    about = Table.grid(padding=(0, 2))
    for line in lines:
        about.add_row(f"[bold]{line['name']}[/]", line["about"])
    yield about
    yield "\nTo run one: fedmerit reproduce NAME --scale SCALE --out DIR"


def opening(one: Reproduction, scale: str, seconds: float, runs: int) -> Iterator[str]:
    """What is about to be done."""
    yield f"{one.name}, scale {scale}: {runs} runs of {one.setting(scale).rounds} rounds, {lasting(seconds)} in all"
    yield from (f"differs from the paper: {what}" for what in one.setting(scale).differs)


def ending(made: Reproduced) -> Iterator[RenderableType]:
    """Tables, pictures, notes, failures."""
    for table in made.told.tables:
        yield from (table.screen(), "")
    yield from (escape(note) for note in made.told.notes)
    yield from (f"unfinished: {escape(run)}, {rounds}" for run, rounds in made.unfinished.items())
    yield from (f"[red]{escape(run)} failed: {escape(why)}[/]" for run, why in made.failed.items())


def as_dict(made: Reproduced) -> dict[str, object]:
    """For machines: the tables as they stand on the screen."""
    tables: Sequence[dict[str, object]] = [
        {"title": table.title, "header": table.header, "rows": table.rows, "below": table.below}
        for table in made.told.tables
    ]
    return {"name": made.reproduction.name, "scale": made.scale, "tables": tables, "failed": made.failed}
