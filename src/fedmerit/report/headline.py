"""The headline of a report: which row is better than the baseline, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedmerit.report.folders import Row
from fedmerit.report.packing import shorten
from fedmerit.report.rows import ACCURACY, RunResult
from fedmerit.study.statistics import LEVEL, holm, paired
from fedmerit.study.verdicts import NOISE, SAME, TOO_FEW, judge

DIGITS = 6
WORDS = {
    "better": "is better than",
    "worse": "is worse than",
    "leans better": "leans better than",
    "leans worse": "leans worse than",
    NOISE: "is inside the noise of",
    SAME: "is the same as",
    TOO_FEW: "has too few seeds for a verdict against",
}
MINUS = "\N{MINUS SIGN}"


def find_baseline(rows: Sequence[Row], recipes: Sequence[str | None], named: str | None) -> int:
    """The row to compare with: the study's, else the first that is FedAvg, else the first."""
    labels = [row.label for row in rows]
    if named in labels:
        return labels.index(str(named))
    return recipes.index("fedavg") if "fedavg" in recipes else 0


def headline(rows: Sequence[Row], results: Sequence[RunResult], baseline: int) -> dict[str, Any] | None:
    """Each row against the baseline by final accuracy, over the seeds that both finished; None without two of them.

    Differences are in points: hundredths of accuracy.
    """
    final = [_by_seed([results[place] for place in row.runs]) for row in rows]
    shared = {i: sorted(final[i].keys() & final[baseline].keys()) for i in range(len(rows)) if i != baseline}
    points = {i: [100 * (final[i][seed] - final[baseline][seed]) for seed in shared[i]] for i in shared}
    tests = {i: paired(values) for i, values in points.items() if len(values) > 1}
    if not tests:
        return None
    names, lines = [row.label for row in rows], list[dict[str, Any]]()
    for (i, test), p_holm in zip(tests.items(), holm([test.p for test in tests.values()]), strict=True):
        effect = {key: shorten(getattr(test, key), DIGITS) for key in ("difference", "low", "high")}
        about = {"row": i, "seeds": shared[i], "points": [shorten(value, DIGITS) for value in points[i]]}
        line = about | effect | {"verdict": judge(test, float(p_holm), "higher")}
        lines.append(line | {"text": _sentence(line, names, names[baseline])})
    return {"baseline": baseline, "level": LEVEL, "rows": lines, "text": _headline(lines, names[baseline])}


def _by_seed(runs: Sequence[RunResult]) -> dict[int, float]:
    """The accuracy after the last round of each finished run."""
    finished = [run for run in runs if run.seed is not None and not run.unfinished and run.metrics.curves]
    last = {int(run.seed or 0): [*run.metrics.curves[ACCURACY].values()][-1] for run in finished}
    return {seed: value for seed, value in last.items() if value is not None and not math.isnan(value)}


def _headline(lines: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """The best row where one is better; else that none is, and the nearest."""
    best = max(lines, key=lambda line: float(line["difference"]))
    if best["verdict"] in ("better", "leans better") or len(lines) == 1:
        return str(best["text"])
    return f"No row is shown to be better than {baseline}. {best['text']}"


def _sentence(line: Mapping[str, Any], names: Sequence[str], baseline: str) -> str:
    words = WORDS.get(line["verdict"], f"({line['verdict']}) against")
    low, high = _points(line["low"]), _points(line["high"])
    seeds = f"{len(line['seeds'])} seeds"
    return f"{names[line['row']]} {words} {baseline}: {_points(line['difference'])} points [{low}, {high}], {seeds}"


def _points(value: float) -> str:
    return f"{value + 0.0:+.2f}".replace("-", MINUS)
