"""A reproduction as a page of Markdown: command, seeds, settings, time, machine, tables, pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import tomli_w

from fedmerit.papers.reproduce.entry import WHOLE, expected, lasting
from fedmerit.papers.reproduce.go import Reproduced
from fedmerit.store.files import write_new_file
from fedmerit.store.run_folder import environment
from fedmerit.store.settings import differences, toml_lines
from fedmerit.study.text_table import MARKDOWN

ESCAPED = r"\\\1"


def write_page(made: Reproduced, path: Path, command: str) -> None:
    """The page, a new file, and its pictures beside it."""
    for name, picture in made.told.figures.items():
        write_new_file(path.with_name(picture_name(path, name)), picture, "another --page")
    write_new_file(path, page(made, path, command), "another --page")


def picture_name(path: Path, figure: str) -> str:
    """`m2f-figures.md` has its picture `figure2` in m2f-figures-figure2.svg."""
    return f"{path.stem}-{figure}.svg"


def page(made: Reproduced, path: Path, command: str) -> str:
    """All of it."""
    return "\n".join(line for part in (_head(made, command), _tables(made, path), _settings(made)) for line in part)


def _head(made: Reproduced, command: str) -> Iterator[str]:
    one = made.reproduction
    plans = {part: study.plan for part, study in made.studies.items()}
    study = next(iter(made.studies.values()))
    runs = sum(len(study.runs) for study in made.studies.values())
    yield from (f"# {one.name} at scale `{made.scale}`", "", f"{one.about}. {one.paper}.", "", f"    {command}", "")
    seeds = f"{'seeds' if len(study.plan.seeds) > 1 else 'seed'} {', '.join(map(str, study.plan.seeds))}"
    yield f"{_count(runs, 'run')} of {made.setting.rounds:,} rounds: {_count(len(study.rows), 'row')}"
    if WHOLE not in plans:
        yield f"in each of {len(plans)} parts ({', '.join(plans)}),"
    yield f"with the {seeds}; for a seed all rows share data, first model and draws of clients. {_time(made)}"
    yield f"Expected on {_cores()} that do nothing else: {lasting(expected(plans, made.setting))}. {_machine()}"
    if made.setting.differs:
        yield from ("", "What differs from the paper:", "", *(f"- {what}" for what in made.setting.differs))
    if one.see:
        yield from ("", "Earlier results: " + ", ".join(f"[{page}]({page})" for page in one.see) + ".")
    yield ""


def _time(made: Reproduced) -> str:
    inside = sum(float(study.figures["seconds"].sum()) for study in made.studies.values())
    call, rounds = (str(timedelta(seconds=round(seconds))) for seconds in (made.seconds, inside))
    if not made.seconds:  # the clock is kept when a call ends; none has yet, or it was killed
        return f"The rounds of all runs add up to {rounds} (h:mm:ss)."
    return f"Took {call} by the clock (h:mm:ss); the rounds of all runs add up to {rounds}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _cores() -> str:
    return f"{environment()['cores']} cores"


def _machine() -> str:
    here = environment()
    versions = ", ".join(f"{name} {here[name]}" for name in ("fedmerit", "python", "numpy", "torch"))
    return f"Machine: {here['machine']}, {here['cores']} cores, {versions}."


def _tables(made: Reproduced, path: Path) -> Iterator[str]:
    yield from ("## Results", "")
    for note in made.told.notes:
        yield f"- {MARKDOWN.sub(ESCAPED, note)}"
    yield ""
    for table in made.told.tables:
        yield f"{table.markdown()}"
    for figure in made.told.figures:
        yield from (f"![{made.reproduction.name}: {figure}]({picture_name(path, figure)})", "")
    yield from (f"- unfinished: {run}, {rounds}" for run, rounds in made.unfinished.items())
    yield from (f"- failed: {run}: {why}" for run, why in made.failed.items())
    yield ""


def _settings(made: Reproduced) -> Iterator[str]:
    """What all rows of the first part share, in what the other parts differ, then the rows, which all parts have."""
    yield from ("## Settings", "", "Keys that are left out have their defaults (docs/configuration.md).", "")
    (first, study), *others = made.studies.items()
    yield from (f"`{first}`:", "") if first else ()
    yield from ("```toml", tomli_w.dumps(study.plan.base).strip(), "```", "")
    for part, other in others:
        changed = differences([toml_lines(study.plan.base), toml_lines(other.plan.base)])
        found = ", ".join(f"`{one['key']} = {one['values'][1]}`" for one in changed)
        yield from (f"`{part}`: the same with {found}", "")
    yield from (f"- row `{row.name}`: `{json.dumps(row.recipe)}`" for row in study.plan.rows)
    yield ""
