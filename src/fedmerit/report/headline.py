"""The headline of a report: which row is better than the baseline, by how much, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedmerit.core.objectives import direction, is_share, measure_label
from fedmerit.core.types import ACCURACY
from fedmerit.report.folders import Row
from fedmerit.report.packing import shorten
from fedmerit.report.rows import VALUE, RunResult
from fedmerit.study.statistics import LEVEL, holm, paired
from fedmerit.study.verdicts import NOISE, SAME, TOO_FEW, judge

DIGITS = 6
WORDS = {
    "better": "{row} is better than {baseline} by {size} {unit}",
    "worse": "{row} is worse than {baseline} by {size} {unit}",
    "leans better": "{row} seems better than {baseline} by {size} {unit}",
    "leans worse": "{row} seems worse than {baseline} by {size} {unit}",
    NOISE: "{row} does not differ clearly from {baseline} ({points} {unit})",
    SAME: "{row} has the same {measure} as {baseline}",
    TOO_FEW: "Too few seeds for a verdict: {row} differs from {baseline} by {points} {unit}",
}
MINUS = "\N{MINUS SIGN}"


def find_baseline(rows: Sequence[Row], recipes: Sequence[str | None], named: str | None) -> int:
    """The row to compare with: the study's, else the first that is FedAvg, else the first."""
    labels = [row.label for row in rows]
    if named in labels:
        return labels.index(str(named))
    return recipes.index("fedavg") if "fedavg" in recipes else 0


def headline(
    rows: Sequence[Row], results: Sequence[RunResult], baseline: int, attack: str | None, measure: str = ACCURACY
) -> dict[str, Any] | None:
    """Each row against the baseline by the final measure, over the seeds that both finished; None without two of them.

    Differences of shares such as accuracy are in points, which are hundredths; those of other measures in their unit.
    `best` is the row that the text speaks of.
    """
    final = [_by_seed([results[place] for place in row.runs]) for row in rows]
    shared = {i: sorted(final[i].keys() & final[baseline].keys()) for i in range(len(rows)) if i != baseline}
    scale, sign = 100 if is_share(measure) else 1, direction(measure)
    points = {i: [scale * (final[i][seed] - final[baseline][seed]) for seed in shared[i]] for i in shared}
    tests = {i: paired(values) for i, values in points.items() if len(values) > 1}
    if not tests:
        return None
    names, lines = [row.label for row in rows], list[dict[str, Any]]()
    for (i, test), p_holm in zip(tests.items(), holm([test.p for test in tests.values()]), strict=True):
        effect = {key: shorten(getattr(test, key), DIGITS) for key in ("difference", "low", "high")}
        about = {"row": i, "seeds": shared[i], "points": [shorten(value, DIGITS) for value in points[i]]}
        lines.append(about | effect | {"verdict": judge(test, float(p_holm), "higher" if sign > 0 else "lower")})
    best = max(lines, key=lambda line: sign * float(line["difference"]))
    text = _sentence(best, names, baseline, measure) + (f" when {attack}" if attack else "")
    if best["verdict"] not in ("better", "leans better", TOO_FEW) and len(lines) > 1:
        text = f"No row is shown to be better than {names[baseline]}: {text}"
    return {"baseline": baseline, "level": LEVEL, "rows": lines, "best": best["row"], "text": text}


def _by_seed(runs: Sequence[RunResult]) -> dict[int, float]:
    """The measure after the last round of each finished run."""
    finished = [run for run in runs if run.seed is not None and not run.unfinished and run.metrics.curves]
    last = {int(run.seed or 0): [*run.metrics.curves[VALUE].values()][-1] for run in finished}
    return {seed: value for seed, value in last.items() if value is not None and not math.isnan(value)}


def _sentence(line: Mapping[str, Any], names: Sequence[str], baseline: int, measure: str) -> str:
    label, share = measure_label(measure), is_share(measure)
    unit = f"points of {label}" if share else label
    words = WORDS.get(line["verdict"], f"{{row}} against {{baseline}}: {line['verdict']}")
    points = f"{line['difference'] + 0.0:+.{2 if share else 4}f}".replace("-", MINUS)
    about = {"row": names[line["row"]], "baseline": names[baseline], "measure": label, "unit": unit}
    return words.format(size=points[1:], points=points, **about)
