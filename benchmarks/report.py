"""The report: one table on the screen, and docs/results/bench.md with a section per work and notes kept by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from results import Result
from rich.console import Console
from rich.table import Table
from tables import Row, rows

NOTES = "<!-- Notes are written by hand; everything below this line is kept when the bench writes this file again. -->"
HEADS = {
    "what": "",
    "seconds": "seconds",
    "spread": "spread",
    "rate": "rate",
    "start": "start, s",
    "memory": "peak memory",
    "compute": "GFLOP/s (of peak)",
    "ratio": "ratio",
    "target": "target",
    "verdict": "",
}
ABOUT = """\
Written by `make bench` (`benchmarks/bench.py`). Every contender runs in a process of its own, one after the other, the
whole series repeated; seconds are medians over the repeats with the least and the largest beside them, ratios are taken
within each repeat before their median. `ratio` is their seconds divided by ours where nothing else is said: above 1 we
are faster. Peak memory is the PSS of all of a contender's processes together, so shared pages count once. GFLOP/s count
three forward passes per image and step. `start` is the time from starting the process to the first round. Peers with
one process were tried with torch's default threads (2) and with 1; the faster setting is the one shown.
"""


def peak(results: Sequence[Result]) -> float:
    """The best matrix product seen with two threads."""
    return max((result.limits["2"]["gflops"] for result in results if "2" in result.limits), default=float("nan"))


def write(path: Path, machine: Mapping[str, str], results: Sequence[Result]) -> None:
    """The whole report, the notes of the file before it at its end."""
    parts = ["# Speed and memory", ABOUT, _machine(machine, results)]
    if any(result.quick for result in results):
        parts.insert(1, "**A quick look with tiny works: these figures mean nothing.**")
    parts += [_section(result, peak(results)) for result in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(part.strip() for part in parts) + f"\n\n## Notes\n\n{NOTES}\n{_notes(path)}"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def show(results: Sequence[Result]) -> None:
    """One table of everything on the screen."""
    table = Table(title="fedmerit bench", show_lines=False)
    for head in ("work", *HEADS.values()):
        table.add_column(head, overflow="fold")
    for result in results:
        for row in rows(result, peak(results)):
            colour = {"met": "green", "not met": "red"}.get(row.verdict)
            table.add_row(result.work, *_cells(row), style=colour)
        table.add_section()
    Console(width=200).print(table)


def _machine(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    for threads in ("1", "2"):
        limits = [result.limits[threads] for result in results if threads in result.limits]
        if limits:
            gflops, read = (max(limit[key] for limit in limits) for key in ("gflops", "read"))
            name = "thread" if threads == "1" else "threads"
            lines.append(f"- at most, {threads} {name}: matrix product {gflops:.1f} GFLOP/s, reading {read:.1f} GB/s")
    commands = dict.fromkeys(result.command for result in results)
    return "## Machine\n\n" + "\n".join([*lines, *(f"- command: `{command}`" for command in commands)])


def _section(result: Result, at_most: float) -> str:
    made = rows(result, at_most)
    used = [name for name in HEADS if any(getattr(row, name) for row in made)]
    lines = [
        f"## {result.work}: {result.title}",
        "",
        f"{result.date}; {max((len(result.good(name)) for name in result.runs), default=0)} repeats.{_stages(result)}",
        *_disturbed(result),
        "",
        "| " + " | ".join(HEADS[name] for name in used) + " |",
        "| " + " | ".join("---" for _ in used) + " |",
        *("| " + " | ".join(getattr(row, name) for name in used) + " |" for row in made),
    ]
    return "\n".join(lines)


def _disturbed(result: Result) -> list[str]:
    """A warning where the machine was not ours alone."""
    if not result.disturbed:
        return []
    used = f"{min(result.busy):.0%} to {max(result.busy):.0%}"
    return ["", f"**Others used {used} of the cores meanwhile: nothing here is held against a target.**"]


def _stages(result: Result) -> str:
    """Where our own seconds go, by the ledger's account of the last repeat."""
    runs = result.good("ours") if result.kind == "rounds" else []
    if not runs or "stages" not in runs[-1].values:
        return ""
    stages = runs[-1].values["stages"]
    rest = runs[-1].seconds() - sum(stages.values())
    told = ", ".join(f"{name} {seconds:.4f}" for name, seconds in {**stages, "ledger and files": rest}.items())
    return f" Our seconds by stage: {told}."


def _cells(row: Row) -> list[str]:
    return [getattr(row, field.name) for field in fields(row)]


def _notes(path: Path) -> str:
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    return before.partition(NOTES)[2].lstrip("\n") or "\n(none yet)\n"
