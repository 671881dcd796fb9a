"""Tables: measured runs as rows of text, each figure beside its target."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from contenders import (
    AIMS,
    CONTENDERS,
    LEAST_BANDWIDTH,
    MOST_BYTES,
    MOST_FOR_SIX,
    MOST_GROWTH,
    MOST_WITHOUT_ONE,
    TARGETS,
    Aim,
)
from results import Result, Run, ratio

READ = "read: "
ONE, SIX, WITHOUT_ONE = (
    "combine, one weighting",
    "combine, six weightings",
    "combine, one weighting, one client left out",
)
DATA_BYTES = 40  # W6, per client: a row of 4 floats, a label, where the training and the test rows begin

Times: TypeAlias = Sequence[tuple[int, float]]  # repeat and seconds


@dataclass(frozen=True)
class Row:
    """One line; empty where a column does not apply."""

    what: str
    seconds: str = ""
    spread: str = ""
    cpu: str = ""
    rate: str = ""
    start: str = ""
    memory: str = ""
    compute: str = ""
    ratio: str = ""
    cpu_ratio: str = ""
    target: str = ""
    verdict: str = ""


def rows(result: Result, peak: float) -> list[Row]:
    """The table of a result; `peak` is the machine's matrix product with two threads in GFLOP/s."""
    match result.kind:
        case "rounds":
            return [_contender(result, name, peak) for name in result.runs]
        case "aggregation":
            return [row for name in result.runs for row in _aggregation(result, name)]
        case "evaluation":
            return _evaluation(result, peak)
        case "parts":
            return _parts(result)
        case _:
            return _scaling(result)


def _contender(result: Result, name: str, peak: float) -> Row:
    contender, runs, ours = CONTENDERS[name], result.good(name), result.good("ours")
    if not runs:
        return Row(contender.label, spread=f"no figure: {result.error(name)}")
    threads = f", {_threads(runs[0].threads)}" if len(contender.threads) > 1 else ""
    seconds = median(run.seconds() for run in runs)
    gflops = result.flops[name] / seconds / 1e9
    against = [ratio(of(runs), of(ours)) for of in (_wall, _cpu)] if name != "ours" else [None, None]
    return Row(
        contender.label + threads,
        **_times(runs),
        rate=f"{result.clients[name] / seconds:.1f} clients/s",
        start=f"{median(run.values['startup'] for run in runs):.1f}",
        memory=_memory(runs),
        compute=f"{gflops:.1f} ({gflops / peak:.0%})",
        **_judge(result, *against, TARGETS.get(result.work, {}).get(name), least=True),
    )


def _aggregation(result: Result, name: str) -> list[Row]:
    runs = result.good(name)
    if not runs:
        return [Row(name, spread=f"no figure: {result.error(name)}")]
    parts = list(runs[0].values["seconds"])
    readers = [part for part in parts if part.startswith(READ)]
    fastest = min(readers, key=lambda part: median(run.seconds(part) for run in runs))
    made = []
    for part in (fastest, *(part for part in parts if part not in readers)):
        label = "read once, the fastest way" if part == fastest else part
        speed = runs[0].values["bytes"] / median(run.seconds(part) for run in runs) / 1e9
        most = {SIX: MOST_FOR_SIX["W4"], WITHOUT_ONE: MOST_WITHOUT_ONE}.get(part)
        if most is not None:
            judged = _judge(result, *_between(runs, part, ONE), most, least=False, unit=" x one")
        elif part != fastest:
            least = LEAST_BANDWIDTH if part == ONE else None
            judged = _judge(result, *_between(runs, fastest, part), least, least=True, unit=" of reading")
        else:
            judged = {}
        made.append(
            Row(f"{label}, {name}", **_times(runs, part), rate=f"{speed:.1f} GB/s", memory=_memory(runs), **judged)
        )
    return made


def _evaluation(result: Result, peak: float) -> list[Row]:
    runs = result.good("ours")
    if not runs:
        return [Row("evaluation", spread=f"no figure: {result.error('ours')}")]
    made = []
    for part in runs[0].values["seconds"]:
        flops, most = result.flops["ours"], None
        if part.startswith("six"):
            flops, most = 6 * flops, MOST_FOR_SIX["W5"]
        gflops = flops / median(run.seconds(part) for run in runs) / 1e9
        against = (None, None) if part == "one model" else _between(runs, part, "one model")
        judged = _judge(result, *against, most, least=False, unit=" x one")
        compute = f"{gflops:.1f} ({gflops / peak:.0%})"
        made.append(Row(part, **_times(runs, part), memory=_memory(runs), compute=compute, **judged))
    return made


def _parts(result: Result) -> list[Row]:
    """Works that are no rounds; they are judged by CPU seconds on any machine."""
    runs = result.good("ours")
    if not runs:
        return [Row(result.title, spread=f"no figure: {result.error('ours')}")]
    aims = AIMS.get(result.work, {})
    return [Row(part, **_times(runs, part), **_reach(runs, part, aims.get(part))) for part in runs[0].values["seconds"]]


def _reach(runs: Sequence[Run], part: str, aim: Aim | None) -> dict[str, str]:
    """How a part stands to its aim."""
    if aim is None:
        return {}
    if aim.share:
        value, shown = median(median(run.values["shares"][part]) for run in runs), "{:.0%} of the time both cores busy"
    elif aim.over or aim.under:
        over, under = (aim.over, part) if aim.over else (part, aim.under)
        found = ratio(_cpu(runs, over), _cpu(runs, under))
        assert found is not None  # both stand in every answer
        value, shown = found, "{:.2f}"
    else:
        value, shown = median(run.cpu(part) for run in runs), "{:.2f} s"
    return {"cpu_ratio": shown.format(value), **_verdict(value, aim.limit, least=aim.least)}


def _scaling(result: Result) -> list[Row]:
    names = [name for name in result.runs if result.good(name)]
    made = [Row(name, spread=f"no figure: {result.error(name)}") for name in result.runs if name not in names]
    for name in names:
        runs, few, last = result.good(name), result.good(names[0]), name == names[-1]
        growth = [ratio(of(runs), of(few)) for of in (_wall, _cpu)] if name != names[0] else [None, None]
        made.append(
            Row(
                f"{result.clients[name]:,} clients",
                **_times(runs),
                rate=f"{median(_without_files(run) for run in runs) * 1e3:.2f} ms without files",
                start=f"{median(run.values['startup'] for run in runs):.1f}",
                memory=_memory(runs),
                **_judge(result, *growth, MOST_GROWTH if last else None, least=False, unit=" x the fewest"),
            )
        )
    if len(names) < 2:
        return made
    return [*made, _growth_without_files(result, names[0], names[-1]), *_per_client(result, names[0], names[-1])]


def _growth_without_files(result: Result, few: str, many: str) -> Row:
    """Syncing files takes as long for any number of clients, and could hide that all else takes longer."""
    over, under = ([(run.repeat, _without_files(run)) for run in result.good(name)] for name in (many, few))
    judged = _judge(result, ratio(over, under), None, MOST_GROWTH, least=False, unit=" x the fewest")
    return Row("growth without the ledger and the files", **judged)


def _without_files(run: Run) -> float:
    return float(sum(run.values["stages"].values()))


def _per_client(result: Result, few: str, many: str) -> list[Row]:
    """Bytes per client: what the most clients need beyond the fewest, divided by how many more they are."""
    more = result.clients[many] - result.clients[few]
    moments: dict[str, Callable[[Run], float]] = {
        "while running": lambda run: run.values["steady"],
        "at most (loading and ending included)": lambda run: run.peak,
    }
    made = []
    for what, size in moments.items():
        most, least = (median(map(size, result.good(name))) for name in (many, few))
        each = (most - least) / more
        label = f"memory per client {what}; {DATA_BYTES} are its data"
        made.append(Row(label, ratio=f"{each:.0f} bytes", **_verdict(each, MOST_BYTES, least=False)))
    return made


def _between(runs: Sequence[Run], over: str, under: str) -> tuple[float | None, float | None]:
    """The ratio of two parts, in wall and in CPU seconds."""
    return ratio(_wall(runs, over), _wall(runs, under)), ratio(_cpu(runs, over), _cpu(runs, under))


def _wall(runs: Sequence[Run], part: str | None = None) -> Times:
    return [(run.repeat, run.seconds(part)) for run in runs]


def _cpu(runs: Sequence[Run], part: str | None = None) -> Times:
    return [(run.repeat, run.cpu(part)) for run in runs]


def _times(runs: Sequence[Run], part: str | None = None) -> dict[str, str]:
    seconds, cpu = ([value for _, value in of(runs, part)] for of in (_wall, _cpu))
    spread = f"{_short(min(seconds))} to {_short(max(seconds))}"
    return {"seconds": _short(median(seconds)), "spread": spread, "cpu": _short(median(cpu))}


def _short(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.4f}"


def _memory(runs: Sequence[Run]) -> str:
    return f"{median(run.peak for run in runs) / 2**20:,.0f} MiB"


def _threads(threads: int | None) -> str:
    return "1 thread" if threads == 1 else "default threads"


def _judge(
    result: Result, wall: float | None, cpu: float | None, target: float | None, *, least: bool, unit: str = ""
) -> dict[str, str]:
    """Both ratios, the target and whether it is met: by wall seconds, on a machine that others use by CPU seconds."""
    shown = ["" if value is None else f"{value:.2f}{unit}" for value in (wall, cpu)]
    told = {"ratio": shown[0], "cpu_ratio": shown[1]}
    return told if target is None else told | _verdict(cpu if result.disturbed else wall, target, least=least)


def _verdict(value: float | None, target: float, *, least: bool) -> dict[str, str]:
    sign, holds = ("≥", operator.ge) if least else ("≤", operator.le)
    verdict = "not judged" if value is None else "met" if holds(value, target) else "not met"
    return {"target": f"{sign} {target:g}", "verdict": verdict}
