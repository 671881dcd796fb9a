"""Output of a reproduction: on the screen, as JSON, and as a page of Markdown with pictures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import tomli_w
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fedmerit.report.settings import differences, toml_lines
from fedmerit.store.files import write_new_file
from fedmerit.store.run_folder import environment, open_ledger
from fedmerit.study.plan import Row
from fedmerit.study.text_table import MARKDOWN
from reproductions.reproduce import REPRODUCTIONS
from reproductions.reproduce.reproduction import SCALES, SEEDS, WHOLE, Reproduction, Result, duration_text, expected
from reproductions.reproduce.runner import Reproduced

ESCAPED = r"\\\1"


def listing() -> list[dict[str, str]]:
    """Every reproduction with its time at each scale, with five seeds on the cores of this machine, for JSON."""
    return [
        {"name": reproduction.name, "about": reproduction.about}
        | {scale: duration_text(expected(reproduction.plans(scale), reproduction.setting(scale))) for scale in SCALES}
        for reproduction in REPRODUCTIONS.values()
    ]


def list_screen() -> Iterator[RenderableType]:
    """The same on the screen: times side by side, then what each reproduction is."""
    lines = listing()
    times = Table("", *SCALES, title=f"Time with {SEEDS} seeds on these cores", box=SIMPLE_HEAD, title_justify="left")
    for line in lines:
        times.add_row(line["name"], *(line[scale].removeprefix("about ") for scale in SCALES))
    yield times
    about = Table.grid(padding=(0, 2))
    for line in lines:
        about.add_row(f"[bold]{line['name']}[/]", line["about"])
    yield about
    yield "\nTo run one: python -m reproductions NAME --scale SCALE --out DIR"


def opening(reproduction: Reproduction, scale: str, seconds: float, runs: int) -> Iterator[str]:
    """What is about to run."""
    setting = reproduction.setting(scale)
    yield (
        f"{reproduction.name}, scale {scale}: {runs} runs of {setting.rounds} rounds, {duration_text(seconds)} in all"
    )
    yield from (f"differs from the paper: {difference}" for difference in setting.differs)


def ending(reproduced: Reproduced) -> Iterator[RenderableType]:
    """What came out: tables, notes, unfinished and failed runs."""
    yield from result_screen(reproduced.result)
    yield from (f"unfinished: {escape(run)}, {rounds}" for run, rounds in reproduced.unfinished.items())
    yield from (f"[red]{escape(run)} failed: {escape(why)}[/]" for run, why in reproduced.failed.items())


def result_screen(result: Result) -> Iterator[RenderableType]:
    """Tables and notes."""
    for table in result.tables:
        yield from (table.screen(), "")
    yield from (escape(note) for note in result.notes)


def as_dict(reproduced: Reproduced) -> dict[str, object]:
    """The tables as on the screen, for JSON."""
    tables = [
        {"title": table.title, "header": table.header, "rows": table.rows, "below": table.below}
        for table in reproduced.result.tables
    ]
    name = reproduced.reproduction.name
    return {"name": name, "scale": reproduced.scale, "tables": tables, "failed": reproduced.failed}


def write_page(reproduced: Reproduced, path: Path, command: str, rate: str = "") -> None:
    """Write the page to a new file, with its pictures beside it; `rate` says how a learning rate was found."""
    for name, picture in reproduced.result.figures.items():
        write_new_file(path.with_name(picture_name(path, name)), picture, "another --page")
    write_new_file(path, page(reproduced, path, command, rate), "another --page")


def picture_name(path: Path, figure: str) -> str:
    """The file of a picture: `figure2` of the page m2f-figures.md is m2f-figures-figure2.svg."""
    return f"{path.stem}-{figure}.svg"


def page(reproduced: Reproduced, path: Path, command: str, rate: str = "") -> str:
    """Command, seeds, time and machine; tables and pictures; settings."""
    return "\n".join([*_head(reproduced, command, rate), *_tables(reproduced, path), *_settings(reproduced)])


def _head(reproduced: Reproduced, command: str, rate: str) -> Iterator[str]:
    reproduction, setting = reproduced.reproduction, reproduced.setting
    plans = {part: study.plan for part, study in reproduced.studies.items()}
    study = next(iter(reproduced.studies.values()))
    runs = sum(len(study.runs) for study in reproduced.studies.values())
    yield from (f"# {reproduction.name} at scale `{reproduced.scale}`", "")
    about = reproduction.about + ("" if reproduction.about.endswith("?") else ".")
    yield from (f"{about} {reproduction.paper}.", "", f"    {command}", "")
    seeds = f"{'seeds' if len(study.plan.seeds) > 1 else 'seed'} {', '.join(map(str, study.plan.seeds))}"
    yield f"{_count(runs, 'run')} of {setting.rounds:,} rounds: {_count(len(study.rows), 'row')}"
    if WHOLE not in plans:
        yield f"in each of {len(plans)} parts ({', '.join(plans)}),"
    yield f"with the {seeds}; for a seed all rows share data, first model and draws of clients. {_time(reproduced)}"
    time = duration_text(expected(plans, setting))
    yield f"Expected on {_cores()} that do nothing else: {time}. {_machines(reproduced)}"
    yield from ("", f"{rate[:1].upper()}{rate[1:]}.") if rate else ()
    if setting.differs:
        yield from ("", "What differs from the paper:", "", *(f"- {difference}" for difference in setting.differs))
    yield ""


def _time(reproduced: Reproduced) -> str:
    in_rounds = sum(float(study.metrics["seconds"].sum()) for study in reproduced.studies.values())
    call, rounds = (str(timedelta(seconds=round(seconds))) for seconds in (reproduced.seconds, in_rounds))
    if not reproduced.seconds:  # the clock is written when a call ends: none has yet, or it was killed
        return f"The rounds of all runs add up to {rounds} (h:mm:ss)."
    return f"Took {call} by the clock (h:mm:ss); the rounds of all runs add up to {rounds}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cores() -> str:
    return f"{environment()['cores']} cores"


def _machines(reproduced: Reproduced) -> str:
    """Where the runs were played, as their ledgers say: a page may be written elsewhere, and later."""
    found: Counter[str] = Counter()
    for study in reproduced.studies.values():
        for run in study.runs:
            if run.begun:
                with open_ledger(run.folder) as ledger:
                    found[_machine(ledger.meta())] += 1
    if len(found) < 2:
        return f"Machine: {next(iter(found), _machine(environment()))}."
    told = "; ".join(f"{_count(runs, 'run')} on {machine}" for machine, runs in found.most_common())
    return f"Machines, between which rounding differs: {told}."


def _machine(here: Mapping[str, str]) -> str:
    versions = ", ".join(f"{name} {here[name]}" for name in ("fedmerit", "python", "numpy", "torch"))
    cpu = f"{here.get('cpu', 'a processor without a name')} ({here['machine']}, {here.get('instructions', 'unknown')})"
    return f"{cpu}, {here['cores']} cores, {versions}"


def _tables(reproduced: Reproduced, path: Path) -> Iterator[str]:
    yield from ("## Results", "")
    for note in reproduced.result.notes:
        yield f"- {MARKDOWN.sub(ESCAPED, note)}"
    yield ""
    for table in reproduced.result.tables:
        yield table.markdown()
    for figure in reproduced.result.figures:
        yield from (f"![{reproduced.reproduction.name}: {figure}]({picture_name(path, figure)})", "")
    yield from (f"- unfinished: {run}, {rounds}" for run, rounds in reproduced.unfinished.items())
    yield from (f"- failed: {run}: {why}" for run, why in reproduced.failed.items())
    yield ""


def row_settings(row: Row) -> str:
    """What a row changes: its recipe, its own keys of [train] and [task], and whether it is a null row.

    >>> row_settings(Row(name="AFL", recipe="agnostic", train={"lr": 0.1}))
    '`{"name": "agnostic"}`, train `{"lr": 0.1}`'
    """
    own = [f", {section} `{json.dumps(keys)}`" for section, keys in (("train", row.train), ("task", row.task)) if keys]
    return "".join([f"`{json.dumps(row.recipe)}`", *own, ", null" if row.null else ""])


def _settings(reproduced: Reproduced) -> Iterator[str]:
    """What all rows of the first part share, how the other parts differ from it, and the rows of every part."""
    yield from ("## Settings", "", "Keys that are left out have their defaults (docs/configuration.md).", "")
    (first, study), *others = reproduced.studies.items()
    yield from (f"`{first}`:", "") if first else ()
    yield from ("```toml", tomli_w.dumps(study.plan.base).strip(), "```", "")
    for part, other in others:
        changed = {
            line["key"]: line["values"][1]
            for line in differences([toml_lines(study.plan.base), toml_lines(other.plan.base)])
        }
        told = [f"with `{key} = {value}`" for key, value in changed.items() if value is not None]
        told += [f"without `{key}`" for key, value in changed.items() if value is None]
        yield from (f"`{part}`: the same {', '.join(told)}", "")
    for row in study.plan.rows:
        yield f"- row `{row.name}`: {row_settings(row)}"
    yield ""
