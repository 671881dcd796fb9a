"""Tables of a study: the comparison, other measures, rounds to target in the papers' layout, agreement of errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedmerit.store.frames import Frame
from fedmerit.study.compared import BASELINE, NEVER, NOISE, ROUNDS, SAME, TOO_FEW
from fedmerit.study.statistics import ALPHA, LEVEL, MOST_SEEDS, POWER, seeds_for_p, smallest_p
from fedmerit.study.study import STEPS, Study
from fedmerit.study.text import TextTable

UNKNOWN = "-"
PLAIN = (NOISE, SAME, TOO_FEW)
OTHERS = ("best", "p10", "p50", "p90", "worst", "variance")


def study_tables(study: Study) -> Iterator[TextTable]:
    """All that fits on a screen."""
    for make in TABLES.values():
        yield from make(study)


def summary_table(study: Study) -> TextTable:
    """The comparison by final accuracy: effect first, p second, and a verdict."""
    lines = _measure(study, "accuracy")
    header = ("row", "accuracy", "difference", f"{LEVEL:.0%} interval", "p (Holm)", "verdict")
    rows = [(line["row"], _number(line["mean"], 4), *_effect(line, 4)) for line in lines]
    title = (
        f"{study.plan.name}: accuracy after {study.horizon} rounds, mean over {len(study.plan.seeds)} paired seeds, "
        f"against {study.plan.against}"
    )
    return TextTable(title, header, tuple(rows), tuple(_about_p(study, lines)) + tuple(_not_counted(study)))


def other_table(study: Study) -> TextTable:
    """Means of the other measures; the paired difference in brackets, with a star where it is outside the noise."""
    cells = {name: [_beside(line) for line in _measure(study, name)] for name in OTHERS}
    costs = {"MB": _costs(study, "bytes_down", "bytes_up"), "s": _costs(study, "seconds")}
    rows = zip(study.rows, *cells.values(), *costs.values(), strict=True)
    title = f"{study.plan.name}: other measures (difference to {study.plan.against}; * outside the noise)"
    below = "worst: mean of the worst tenth of the clients; variance: of accuracy over clients"
    return TextTable(title, ("row", *OTHERS, *costs), tuple(rows), (below,))


def audit_table(study: Study) -> Iterator[TextTable]:
    """What was audited at the end: gaps between groups, and other objectives; nothing where nothing was."""
    names = [name for name in dict.fromkeys(study.compared["measure"]) if name.startswith(("gap ", "audit "))]
    if not names:
        return
    cells = [[_beside(line) for line in _measure(study, name)] for name in names]
    title = f"{study.plan.name}: audits (difference to {study.plan.against}; * outside the noise)"
    below = "at the server where it has rows, else the clients' mean; a gap is better the smaller it is"
    yield TextTable(title, ("row", *names), tuple(zip(study.rows, *cells, strict=True)), (below,))


def reached_tables(study: Study) -> Iterator[TextTable]:
    """Per target, in the papers' layout: rows x shares of devices, and the rounds saved against the baseline.

    `>` where a run did not get there: the mean, restricted to the rounds that were played, is then a lower bound.
    """
    shares = sorted(study.plan.shares)
    for target in study.plan.targets:
        columns = [[_rounds(line) for line in _measure(study, ROUNDS, target, share)] for share in shares]
        title = f"{study.plan.name}: rounds until a share of the devices is above {target:.0%}"
        below = f"(rounds saved against {study.plan.against}; >: not reached within {study.horizon} in some seed)"
        header = ("row", *(f"{share:.0%}" for share in shares))
        yield TextTable(title, header, tuple(zip(study.rows, *columns, strict=True)), (below,))


def saved_table(study: Study) -> TextTable:
    """Rounds saved, as a mean over the shares of devices: effect first, p second, and a verdict for each target."""
    lines = [line for target in study.plan.targets for line in _measure(study, ROUNDS, target)]
    rows = [
        (line["row"], f"{line['target']:.0%}", *_effect(line, 2, sign=-1))
        for line in lines
        if line["row"] != study.plan.against
    ]
    header = ("row", "target", "rounds saved", f"{LEVEL:.0%} interval", "p (Holm)", "verdict")
    title = f"{study.plan.name}: rounds to target saved against {study.plan.against}, mean over the shares of devices"
    return TextTable(title, header, tuple(rows), tuple(_needed(study)))


def agreement_table(study: Study) -> Iterator[TextTable]:
    """Test rows that a row's final models and the baseline's get right, summed over seeds; if there is one model."""
    figures = study.figures[study.figures["finished"]].dropna(subset=["both"])
    against = study.plan.against
    if set(figures["row"]) <= {against}:
        return
    sums = figures.groupby("row", sort=False)[["both", "only_baseline", "only_row", "neither"]].sum()
    expected = figures.groupby("row", sort=False)["neither_if_independent"].sum()
    rows = [
        (row, *(f"{int(count):,}" for count in sums.loc[row]), f"{expected[row]:,.1f}")
        for row in study.rows
        if row in sums.index and row != against
    ]
    header = ("row", "both right", f"only {against}", "only the row", "neither", "neither, if unrelated")
    title = f"{study.plan.name}: errors on the same test rows, all seeds together"
    yield TextTable(title, header, tuple(rows))


TABLES: Mapping[str, Callable[[Study], Iterator[TextTable]]] = {
    "compared": lambda study: iter((summary_table(study), other_table(study), *audit_table(study))),
    "reached": reached_tables,
    "saved": lambda study: iter([saved_table(study)] if len(study.rows) > 1 else []),
    "agreement": agreement_table,
}
"""Tables by name, as exports call them."""


def _measure(study: Study, name: str, target: float = math.nan, share: float = math.nan) -> list[dict[str, Any]]:
    """The lines of one measure, a line per row."""
    found = study.compared
    chosen = found[(found["measure"] == name) & _is(found["target"], target) & _is(found["share"], share)]
    lines: list[dict[str, Any]] = chosen.to_dict("records")
    return lines


def _is(column: Frame, value: float) -> Frame:
    return column.isna() if math.isnan(value) else column == value


def _effect(line: Mapping[str, Any], digits: int, sign: int = 1) -> tuple[str, str, str, str]:
    """Difference, interval, p, verdict."""
    if line["verdict"] == BASELINE:
        return "", "", "", BASELINE
    difference = _number(sign * line["difference"], digits, "+")
    if math.isnan(line["low"]):
        return difference, "", "", line["verdict"]
    low, high = (_number(end, digits, "+") for end in sorted((sign * line["low"], sign * line["high"])))
    return difference, f"[{low}, {high}]", f"{line['p']:.3g} ({line['p_holm']:.3g})", line["verdict"]


def _number(value: float, digits: int, sign: str = "") -> str:
    return UNKNOWN if math.isnan(value) else f"{value + 0.0:{sign}.{digits}f}"


def _beside(line: Mapping[str, Any]) -> str:
    """A mean and its paired difference."""
    digits = 4 if line["measure"] == "variance" else 3
    mean = _number(line["mean"], digits)
    if line["verdict"] in (BASELINE, SAME):
        return mean
    star = "" if line["verdict"] in PLAIN else "*"
    return f"{mean} ({_number(line['difference'], digits, '+')}{star})"


def _costs(study: Study, *names: str) -> list[str]:
    scale = 1 if "seconds" in names else 1e6
    means = [[line["mean"] for line in _measure(study, name)] for name in names]
    return [_number(sum(parts) / scale, 1) for parts in zip(*means, strict=True)]


def _rounds(line: Mapping[str, Any]) -> str:
    """The mean over seeds, and the rounds saved."""
    mean = f">{line['mean']:.4g}" if line["censored"] else _number(line["mean"], 1)
    return mean if line["verdict"] in (BASELINE, NEVER) else f"{mean} ({_number(-line['difference'], 1, '+')})"


def _about_p(study: Study, lines: list[dict[str, Any]]) -> Iterator[str]:
    """What p can say with so many seeds."""
    others, seeds = len(study.rows) - 1, max((line["seeds"] for line in lines), default=0)
    needed = seeds_for_p(others)
    if others and seeds < needed:
        yield (
            f"with {seeds} seeds p is never below {smallest_p(seeds):.3g}; p (Holm) can fall to {ALPHA:g} from "
            f"{needed} seeds on, until then a row at most leans"
        )


def _not_counted(study: Study) -> Iterator[str]:
    for label, rounds in study.unfinished.items():
        yield f"unfinished, not counted: {label} ({rounds} of {study.horizon} rounds)"


def _needed(study: Study) -> Iterator[str]:
    """How many seeds would tell a difference, by the row and target that need most."""
    needs = study.needed[study.needed["share"].isna()].dropna(subset=["sd"])
    if len(needs):
        worst = needs.loc[needs["sd"].idxmax()]
        counts = [f"{worst[f'for {k}']:,.0f}" if worst[f"for {k}"] > 0 else f"> {MOST_SEEDS:,}" for k in STEPS]
        yield (
            f"seeds needed to see {' / '.join(map(str, STEPS))} rounds (power {POWER:g}): {' / '.join(counts)}, by "
            f"{worst['row']} at {worst['target']:.0%}, which differs most from seed to seed"
        )
