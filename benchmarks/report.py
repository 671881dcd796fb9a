"""The report: one table on the screen, and a Markdown file with a section per work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path

from results import Result
from rich.console import Console
from rich.table import Table
from tables import Row, rows

HEADS = {
    "what": "",
    "seconds": "seconds",
    "spread": "spread",
    "cpu": "CPU seconds",
    "rate": "rate",
    "start": "start, s",
    "memory": "peak memory",
    "compute": "GFLOP/s (of peak)",
    "ratio": "ratio",
    "cpu_ratio": "of CPU seconds",
    "target": "target",
    "verdict": "",
}
ABOUT = """\
Written by `make bench` (`benchmarks/bench.py`). Every contender runs in a process of its own, one after the other, the
whole series repeated; seconds are medians over the repeats with the least and the largest beside them, ratios are taken
within each repeat before their median. `ratio` is their seconds divided by ours where nothing else is said: above 1 we
are faster. `of CPU seconds` is the same ratio of the CPU seconds of all of a contender's processes together: it bears a
machine that others use as well, and is what is judged there. W7 to W12 are always judged by CPU seconds. Peak memory is
the PSS of all of a contender's processes together, so shared pages count once. GFLOP/s count three forward passes per
image and step. `start` is the time from starting the process to the first round. Peers with one process were tried with
torch's default threads (2) and with 1; the faster setting is the one shown. Titles name the instruction set; an AVX-512
machine plays AVX2 as well (`--isa avx2`).
"""


def peak(results: Sequence[Result], isa: str) -> float:
    """The best matrix product seen with two threads and this instruction set."""
    limits = [result.limits["2"] for result in results if "2" in result.limits and result.isa == isa]
    return max((limit["gflops"] for limit in limits), default=float("nan"))


def write(path: Path, machine: Mapping[str, str], results: Sequence[Result]) -> None:
    """Write the whole report."""
    parts = ["# Speed and memory", ABOUT, _machine(machine, results)]
    if any(result.quick for result in results):
        parts.insert(1, "**A quick look with tiny works: these figures mean nothing.**")
    parts += [_section(result, peak(results, result.isa)) for result in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text("\n\n".join(one.strip() for one in parts) + "\n", encoding="utf-8")
    part.replace(path)


def show(results: Sequence[Result]) -> None:
    """One table of everything on the screen."""
    table = Table(title="fedmerit bench", show_lines=False)
    for head in ("work", *HEADS.values()):
        table.add_column(head, overflow="fold")
    for result in results:
        for row in rows(result, peak(results, result.isa)):
            colour = {"met": "green", "not met": "red"}.get(row.verdict)
            table.add_row(f"{result.work} {result.isa}", *_cells(row), style=colour)
        table.add_section()
    Console(width=200).print(table)


def _machine(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    for isa, threads in product(dict.fromkeys(result.isa for result in results), ("1", "2")):
        limits = [one.limits[threads] for one in results if threads in one.limits and one.isa == isa]
        if limits:
            gflops, read = (max(limit[key] for limit in limits) for key in ("gflops", "read"))
            name = "thread" if threads == "1" else "threads"
            told = f"matrix product {gflops:.1f} GFLOP/s, reading {read:.1f} GB/s"
            lines.append(f"- at most, {isa}, {threads} {name}: {told}")
    commands = dict.fromkeys(result.command for result in results)
    return "## Machine\n\n" + "\n".join([*lines, *(f"- command: `{command}`" for command in commands)])


def _section(result: Result, at_most: float) -> str:
    made = rows(result, at_most)
    repeats = max((len(result.good(name)) for name in result.runs), default=0)
    used = [name for name in HEADS if any(getattr(row, name) for row in made)]
    lines = [
        f"## {result.work}: {result.title} ({result.isa})",
        "",
        f"{result.date}; commit {result.commit}; {repeats} repeats.{_stages(result)}",
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
    return ["", f"**Others used {used} of the cores before the repeats: judged by CPU seconds, or not at all.**"]


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
