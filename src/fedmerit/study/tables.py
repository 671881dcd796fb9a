"""Tables of a study: comparison of rows, further metrics, rounds to target in the papers' layout."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedmerit.core.objectives import measure_label
from fedmerit.core.types import ACCURACY
from fedmerit.store.frames import Frame
from fedmerit.study.attacks import attack_tables
from fedmerit.study.metrics import OF_MEASURE, better
from fedmerit.study.plan import ROUNDS, target_text
from fedmerit.study.statistics import ALPHA, LEVEL, seeds_for_p
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable, number_text
from fedmerit.study.verdicts import BASELINE, NEVER, NOISE, SAME, TOO_FEW, effect_cells
from fedmerit.study.worth import worth_tables

NO_STAR = (NOISE, SAME, TOO_FEW)


def summary_table(study: Study) -> TextTable:
    """Compare rows by the final measure: difference to the baseline, interval, p and verdict."""
    lines, label = _lines_of(study, study.measure), measure_label(study.measure)
    header = ("row", label, "difference", f"{LEVEL:.0%} interval", "p (Holm)", "verdict")
    rows = [(line["row"], number_text(line["mean"], 4), *effect_cells(line, 4)) for line in lines]
    title = (
        f"{study.plan.name}: {label} after {study.horizon} rounds, mean over {len(study.plan.seeds)} seeds; paired "
        f"difference to {study.plan.against}"
    )
    below = (*_constant_notes(study), *_p_note(study, lines), *_unfinished_notes(study))
    spreads = _spreads([_deviations(study, study.measure, 4)])
    return TextTable(title, header, tuple(rows), below, _best([lines]), spreads)


def metric_tables(study: Study) -> Iterator[TextTable]:
    """Make tables of the means of further metrics, and of the last round's audits if there are any.

    The paired difference is in brackets, with a star if its interval excludes 0.
    """
    costs = {"MB": _costs(study, "bytes_down", "bytes_up"), "s": _costs(study, "seconds")}
    below = f"worst: mean of the worst tenth of the clients; variance: of {measure_label(study.measure)} over clients"
    accuracy = () if study.measure == ACCURACY else (ACCURACY,)
    yield _metric_table(study, "other measures", (*accuracy, *OF_MEASURE, "variance"), costs, below)
    audits = [name for name in dict.fromkeys(study.compared["measure"]) if name.startswith(("gap ", "audit "))]
    if audits:
        errors = " and an error" * any(better(name) == "lower" for name in audits if name.startswith("audit "))
        below = f"on the server's rows if it has any, else mean over clients; for a gap{errors}, lower is better"
        yield _metric_table(study, "audits", audits, {}, below)


def _metric_table(
    study: Study, what: str, names: Sequence[str], more: Mapping[str, Sequence[str]], below: str
) -> TextTable:
    lines = [_lines_of(study, name) for name in names]
    cells = [list(map(_mean_and_difference, of_rows)) for of_rows in lines]
    spreads = _spreads([_deviations(study, name, _digits(name)) for name in names])
    title = f"{study.plan.name}: {what}, mean (difference to {study.plan.against}; * outside the noise)"
    rows = tuple(zip(study.rows, *cells, *more.values(), strict=True))
    return TextTable(title, ("row", *names, *more), rows, (below,), _best(lines), spreads)


def reached_tables(study: Study) -> Iterator[TextTable]:
    """Make a table per target in the papers' layout: rows x shares of devices, and the rounds saved.

    `>` marks a mean of runs that did not all reach the target: restricted to the horizon, it is a lower bound and has
    no standard deviation.
    """
    shares = sorted(study.plan.shares)
    for target in study.targets:
        lines = [_lines_of(study, ROUNDS, target, share) for share in shares]
        columns = [list(map(_rounds, of_rows)) for of_rows in lines]
        above = f"{'at or ' * study.plan.or_equal}{target_text(target, study.measure)}"
        title = f"{study.plan.name}: rounds until a share of the devices is {above}, mean"
        below = f"in brackets: rounds saved against {study.plan.against}; >: some seed did not reach it in time"
        header = ("row", *(f"{share:.0%}" for share in shares))
        rows = tuple(zip(study.rows, *columns, strict=True))
        spreads = _spreads([_round_deviations(study, target, share) for share in shares])
        yield TextTable(title, header, rows, (below,), _best(lines), spreads)


def saved_table(study: Study) -> TextTable:
    """Make the table of rounds saved, mean over the shares of devices: interval, p and verdict for each target."""
    lines = [line for target in study.targets for line in _lines_of(study, ROUNDS, target)]
    rows = [
        (line["row"], target_text(line["target"], study.measure).partition(" ")[2], *effect_cells(line, 2, sign=-1))
        for line in lines
        if line["row"] != study.plan.against
    ]
    header = ("row", "target", "rounds saved", f"{LEVEL:.0%} interval", "p (Holm)", "verdict")
    title = f"{study.plan.name}: rounds to target saved against {study.plan.against}, mean over the shares of devices"
    return TextTable(title, header, tuple(rows))


TABLES: Mapping[str, Callable[[Study], Iterator[TextTable]]] = {
    "compared": lambda study: iter((summary_table(study), *metric_tables(study))),
    "worth": worth_tables,
    "reached": reached_tables,
    "saved": lambda study: iter([saved_table(study)] if len(study.rows) > 1 and study.targets else []),
    "tuning": lambda study: (tuned.table() for tuned in study.tunings.values()),
    "attacks": lambda study: attack_tables(study.plan.name, study.attacks),
}
"""Tables by name, in the order in which they are shown."""


def _lines_of(study: Study, metric: str, target: float = math.nan, share: float = math.nan) -> list[dict[str, Any]]:
    """The lines of one metric in `Study.compared`, a line per row."""
    frame = study.compared
    chosen = (frame["measure"] == metric) & _equals(frame["target"], target) & _equals(frame["share"], share)
    lines: list[dict[str, Any]] = frame[chosen].to_dict("records")
    return lines


def _deviations(study: Study, metric: str, digits: int) -> list[str]:
    """The standard deviation of each row over its finished seeds; "" with one seed."""
    finished = study.metrics[study.metrics["finished"]]
    by_row = finished.groupby("row")[metric].std()
    return [_known_text(by_row.get(row), digits) for row in study.rows]


def _round_deviations(study: Study, target: float, share: float) -> list[str]:
    """The standard deviation of the rounds to a target; "" if a seed did not reach it."""
    frame = study.reached
    chosen = frame[_equals(frame["target"], target) & _equals(frame["share"], share)]
    by_row = {row: runs["rounds"].std(skipna=False) for row, runs in chosen.groupby("row")}
    return [_known_text(by_row.get(row), 1) for row in study.rows]


def _known_text(value: float | None, digits: int) -> str:
    return "" if value is None or math.isnan(value) else number_text(value, digits)


def _spreads(columns: Sequence[Sequence[str]]) -> dict[tuple[int, int], str]:
    """The standard deviations by row and column; column 0 has the names of the rows."""
    return {(row, place): text for place, texts in enumerate(columns, 1) for row, text in enumerate(texts) if text}


def _best(columns: Sequence[Sequence[Mapping[str, Any]]]) -> frozenset[tuple[int, int]]:
    """The cells with the best mean of each column; none if the column has one row or all means are equal.

    A mean that is only a lower bound is never the best.
    """
    best: set[tuple[int, int]] = set()
    for place, lines in enumerate(columns, 1):
        signs = [-1 if line["better"] == "lower" else 1 for line in lines]
        bounds = [line["censored"] > 0 for line in lines]
        means = [math.nan if b else s * line["mean"] for s, b, line in zip(signs, bounds, lines, strict=True)]
        distinct = {mean for mean in means if not math.isnan(mean)}
        if len(distinct) > 1:
            best |= {(row, place) for row, mean in enumerate(means) if mean == max(distinct)}
    return frozenset(best)


def _equals(column: Frame, value: float) -> Frame:
    return column.isna() if math.isnan(value) else column == value


def _digits(metric: str) -> int:
    return 4 if metric == "variance" else 3


def _mean_and_difference(line: Mapping[str, Any]) -> str:
    """Format a mean and, in brackets, its paired difference."""
    digits = _digits(line["measure"])
    mean = number_text(line["mean"], digits)
    if line["verdict"] in (BASELINE, SAME):
        return mean
    star = "" if line["verdict"] in NO_STAR else "*"
    return f"{mean} ({number_text(line['difference'], digits, '+')}{star})"


def _costs(study: Study, *names: str) -> list[str]:
    scale = 1 if "seconds" in names else 1e6
    means = [[line["mean"] for line in _lines_of(study, name)] for name in names]
    return [number_text(sum(parts) / scale, 1) for parts in zip(*means, strict=True)]


def _rounds(line: Mapping[str, Any]) -> str:
    """Format the mean over seeds and, in brackets, the rounds saved."""
    mean = f">{line['mean']:.4g}" if line["censored"] else number_text(line["mean"], 1)
    return mean if line["verdict"] in (BASELINE, NEVER) else f"{mean} ({number_text(-line['difference'], 1, '+')})"


def _constant_notes(study: Study) -> Iterator[str]:
    """State which rows have a final model that is not better than a constant answer."""
    events = study.events[study.events["kind"] == "constant"]
    for row, of_row in events.groupby("row", sort=False):
        seeds = f"{of_row['seed'].nunique()} of {len(study.plan.seeds)} seeds"
        yield f"WARNING: {row}, in {seeds}: {of_row.iloc[0]['text']}"


def _p_note(study: Study, lines: list[dict[str, Any]]) -> Iterator[str]:
    """State how many seeds are needed for p < ALPHA, if there are fewer."""
    tests, seeds = len(study.rows) - 1, max((line["seeds"] for line in lines), default=0)
    if tests and seeds < (needed := seeds_for_p(tests)):
        yield f"{seeds} seeds cannot reach p < {ALPHA:g}; use at least {needed}."


def _unfinished_notes(study: Study) -> Iterator[str]:
    for run, rounds in study.unfinished.items():
        yield f"not included, because unfinished: {run} ({rounds} of {study.horizon} rounds)"
