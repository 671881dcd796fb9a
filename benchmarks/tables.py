"""Tables: measured runs as rows of text, each figure beside its target."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from contenders import CONTENDERS, LEAST_BANDWIDTH, MOST_BYTES, MOST_FOR_SIX, MOST_GROWTH, TARGETS
from results import Result, Run, ratio

READ = "read: "
ONE, SIX = "combine, one weighting", "combine, six weightings"
DATA_BYTES = 40  # W6, per client: a row of 4 floats, a label, where the training and the test rows begin


@dataclass(frozen=True)
class Row:
    """One line; empty where a column does not apply."""

    what: str
    seconds: str = ""
    spread: str = ""
    rate: str = ""
    start: str = ""
    memory: str = ""
    compute: str = ""
    ratio: str = ""
    target: str = ""
    verdict: str = ""


def rows(result: Result, peak: float) -> list[Row]:
    """The table of a result; `peak` is the machine's matrix product with two threads in GFLOP/s."""
    match result.kind:
        case "rounds":
            made = [_contender(result, name, peak) for name in result.runs]
        case "aggregation":
            made = [row for name in result.runs for row in _aggregation(result, name)]
        case "evaluation":
            made = _evaluation(result, peak)
        case _:
            made = _scaling(result)
    if result.disturbed:
        made = [replace(row, verdict="not judged" if row.verdict else "") for row in made]
    return made


def _contender(result: Result, name: str, peak: float) -> Row:
    contender, runs = CONTENDERS[name], result.good(name)
    if not runs:
        return Row(contender.label, spread=f"no figure: {result.error(name)}")
    threads = f", {_threads(runs[0].threads)}" if len(contender.threads) > 1 else ""
    seconds = [run.seconds() for run in runs]
    gflops = result.flops[name] / median(seconds) / 1e9
    against = ratio(_by_repeat(runs), _by_repeat(result.good("ours"))) if name != "ours" else None
    return Row(
        contender.label + threads,
        *_times(seconds),
        f"{result.clients[name] / median(seconds):.1f} clients/s",
        f"{median(run.values['startup'] for run in runs):.1f}",
        _mebibytes(median(run.peak for run in runs)),
        f"{gflops:.1f} ({gflops / peak:.0%})",
        *_judge(against, TARGETS.get(result.work, {}).get(name), least=True),
    )


def _aggregation(result: Result, name: str) -> list[Row]:
    runs = result.good(name)
    if not runs:
        return [Row(name, spread=f"no figure: {result.error(name)}")]
    parts = list(runs[0].values["seconds"])
    fastest = [(run.repeat, min(run.seconds(part) for part in parts if part.startswith(READ))) for run in runs]
    made = [_operation(f"read once, the fastest way, {name}", [value for _, value in fastest], runs)]
    for part in (part for part in parts if not part.startswith(READ)):
        times = _by_repeat(runs, part)
        judged = _judge(ratio(fastest, times), LEAST_BANDWIDTH if part == ONE else None, least=True, unit=" of reading")
        if part == SIX:
            judged = _judge(ratio(times, _by_repeat(runs, ONE)), MOST_FOR_SIX["W4"], least=False, unit=" x one")
        made.append(_operation(f"{part}, {name}", [value for _, value in times], runs, judged))
    return made


def _operation(what: str, seconds: Sequence[float], runs: Sequence[Run], judged: tuple[str, ...] = ()) -> Row:
    speed = f"{runs[0].values['bytes'] / median(seconds) / 1e9:.1f} GB/s"
    return Row(what, *_times(seconds), speed, "", _mebibytes(median(run.peak for run in runs)), "", *judged)


def _evaluation(result: Result, peak: float) -> list[Row]:
    runs = result.good("ours")
    if not runs:
        return [Row("evaluation", spread=f"no figure: {result.error('ours')}")]
    made = []
    for part in runs[0].values["seconds"]:
        times = _by_repeat(runs, part)
        seconds = [value for _, value in times]
        flops, most = result.flops["ours"], None
        if part.startswith("six"):
            flops, most = 6 * flops, MOST_FOR_SIX["W5"]
        gflops = flops / median(seconds) / 1e9
        against = None if part == "one model" else ratio(times, _by_repeat(runs, "one model"))
        memory = _mebibytes(median(run.peak for run in runs))
        compute = f"{gflops:.1f} ({gflops / peak:.0%})"
        made.append(
            Row(part, *_times(seconds), "", "", memory, compute, *_judge(against, most, least=False, unit=" x one"))
        )
    return made


def _scaling(result: Result) -> list[Row]:
    names = [name for name in result.runs if result.good(name)]
    made = [Row(name, spread=f"no figure: {result.error(name)}") for name in result.runs if name not in names]
    for name in names:
        runs, last = result.good(name), name == names[-1]
        seconds = [run.seconds() for run in runs]
        growth = ratio(_by_repeat(runs), _by_repeat(result.good(names[0]))) if name != names[0] else None
        made.append(
            Row(
                f"{result.clients[name]:,} clients",
                *_times(seconds),
                f"{median(_without_files(run) for run in runs) * 1e3:.2f} ms without files",
                f"{median(run.values['startup'] for run in runs):.1f}",
                _mebibytes(median(run.peak for run in runs)),
                "",
                *_judge(growth, MOST_GROWTH if last else None, least=False, unit=" x the fewest"),
            )
        )
    if len(names) < 2:
        return made
    return [*made, _growth_without_files(result, names[0], names[-1]), *_per_client(result, names[0], names[-1])]


def _growth_without_files(result: Result, few: str, many: str) -> Row:
    """Syncing files takes as long for any number of clients, and could hide that all else takes longer."""
    over, under = ([(run.repeat, _without_files(run)) for run in result.good(name)] for name in (many, few))
    judged = _judge(ratio(over, under), MOST_GROWTH, least=False, unit=" x the fewest")
    return Row("growth without the ledger and the files", "", "", "", "", "", "", *judged)


def _without_files(run: Run) -> float:
    return float(sum(run.values["stages"].values()))


def _per_client(result: Result, few: str, many: str) -> list[Row]:
    """Bytes per client: what the most clients need beyond the fewest, divided by how many more they are."""
    more = result.clients[many] - result.clients[few]
    made = []
    for what, values in (
        ("while running", [median(run.values["steady"] for run in result.good(name)) for name in (many, few)]),
        (
            "at most (loading and ending included)",
            [median(run.peak for run in result.good(name)) for name in (many, few)],
        ),
    ):
        bytes_each = (values[0] - values[1]) / more
        judged = _judge(bytes_each, MOST_BYTES, least=False, unit=" bytes", digits=0)
        made.append(Row(f"memory per client {what}; {DATA_BYTES} are its data", "", "", "", "", "", "", *judged))
    return made


def _by_repeat(runs: Sequence[Run], part: str | None = None) -> list[tuple[int, float]]:
    return [(run.repeat, run.seconds(part)) for run in runs]


def _times(seconds: Sequence[float]) -> tuple[str, str]:
    return _short(median(seconds)), f"{_short(min(seconds))} to {_short(max(seconds))}"


def _short(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.4f}"


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _threads(threads: int | None) -> str:
    return "1 thread" if threads == 1 else "default threads"


def _judge(
    value: float | None, target: float | None, *, least: bool, unit: str = "", digits: int = 2
) -> tuple[str, str, str]:
    """The figure, its target and whether that is met."""
    shown = "" if value is None else f"{value:.{digits}f}{unit}"
    if target is None:
        return shown, "", ""
    sign, holds = ("≥", operator.ge) if least else ("≤", operator.le)
    return shown, f"{sign} {target:g}", "" if value is None else "met" if holds(value, target) else "not met"
