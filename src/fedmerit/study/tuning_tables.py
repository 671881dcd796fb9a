"""Tables of tunings: the points of one, best first, and what was chosen for each row of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmerit.study.cells import UNKNOWN, effect_cells, number_text
from fedmerit.study.grid import value_text
from fedmerit.study.plan import Plan
from fedmerit.study.statistics import LEVEL
from fedmerit.study.text_table import TextTable
from fedmerit.study.tune import CHOSEN, Tuned
from fedmerit.study.tuning import ROUNDS
from fedmerit.study.verdicts import FEWEST, NOISE, SAME


def points_table(tuned: Tuned) -> TextTable:
    """The points of a tuning, the best first, with their paired difference to it."""
    tuning = tuned.tuning
    digits = 2 if tuning.measure == ROUNDS else 4
    rows = [_point_cells(line, digits) for line in tuned.points.to_dict("records")]
    of = f"{tuning.name}: " if tuning.name else ""
    when = "" if tuning.measure == ROUNDS else f" after {tuned.horizon} rounds"
    title = f"{of}{tuning.about}{when}, {len(tuning.points)} points on seeds {seeds_text(tuning.seeds)}"
    header = ("point", "seeds", tuning.measure, "difference", f"{LEVEL:.0%} interval", "verdict")
    return TextTable(title, header, tuple(rows), tuple(notes(tuned)))


def _point_cells(line: Mapping[str, Any], digits: int) -> tuple[str, ...]:
    mean = number_text(line["mean"], digits)
    difference, interval, *_ = ("", "") if line["verdict"] == CHOSEN else effect_cells(line, digits)
    shown = f">{mean}" if line["censored"] > 0 else mean
    return line["point"], str(line["seeds"]), shown, difference, interval, line["verdict"]


def notes(tuned: Tuned) -> Iterator[str]:
    """What to know of a tuning: an edge, noise, how points dropped out, and on which seeds to report."""
    yield from edge_notes(tuned)
    names = tuned.points["point"]
    near = [name for name, verdict in zip(names, tuned.points["verdict"], strict=True) if verdict in (NOISE, SAME)]
    if near:
        yield f"as good as the best, as far as these seeds can tell: {', '.join(near)}"
    if len(tuned.tuning.seeds) < FEWEST:
        yield f"with fewer than {FEWEST} tuning seeds nothing can be said about noise"
    yield rule_text(tuned)
    if tuned.best is not None:
        yield "the mean of the best is flattered by the choice: report on seeds other than these"
    else:
        yield f"not decided: {len(tuned.missing)} runs of this heat are missing"


def edge_notes(tuned: Tuned) -> Iterator[str]:
    """A sentence per key whose best value is an end of its grid."""
    for key, end in tuned.edges.items():
        way = "upwards" if end == "largest" else "downwards"
        value = value_text((tuned.best or {})[key])
        yield f"the best {key}, {value}, is the {end} of its grid: extend it {way}"


def rule_text(tuned: Tuned) -> str:
    """How the points dropped out, in one line."""
    heat_sizes = tuned.tuning.heat_sizes
    if len(heat_sizes) == 1:
        return "every point ran on all seeds"
    (every, on), *later = heat_sizes
    heats = ", ".join(f"{points} on {seeds}" for points, seeds in later)
    return f"{every} points on {on} seed{'s' * (on > 1)}, {heats}: each time the better half went on, at least two"


def tuning_table(plan: Plan, tunings: Mapping[str, Tuned]) -> Iterator[TextTable]:
    """What each row of a study was tuned over, and what was chosen; no table where no row has a grid."""
    if not tunings:
        return
    rows = [cells for row, tuned in tunings.items() for cells in _key_cells(row, tuned)]
    title = (
        f"{plan.name}: tuning, by {plan.tune.about}, on seeds {seeds_text(plan.tune.seeds)}; "
        f"the other tables report on seeds {seeds_text(plan.seeds)}"
    )
    edges = [f"{row}: {note}" for row, tuned in tunings.items() for note in edge_notes(tuned)]
    untuned = [row.name for row in plan.rows if row.tune is None]
    others = [f"not tuned: {', '.join(untuned)}"] if untuned else []
    if plan.against in untuned:
        others.append(f"{plan.against} is the baseline and not tuned: a gain over it may be that of tuning alone")
    header = ("row", "key", "grid", "chosen", "edge")
    yield TextTable(title, header, tuple(rows), (*edges, *others))


def _key_cells(row: str, tuned: Tuned) -> Iterator[tuple[str, ...]]:
    for place, (key, values) in enumerate(tuned.tuning.grid.items()):
        chosen = UNKNOWN if tuned.best is None else value_text(tuned.best[key])
        yield "" if place else row, key, ", ".join(map(value_text, values)), chosen, tuned.edges.get(key, "")


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as a range where they are one.

    >>> seeds_text([101, 102, 103]), seeds_text([3, 7])
    ('101..103', '3, 7')
    """
    in_line = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]}..{seeds[-1]}" if in_line else ", ".join(map(str, seeds))


def tuned_values(tuned: Tuned) -> dict[str, Any]:
    """A tuning as plain values: what it went by, the grid, what was chosen, edges and heats."""
    tuning, halving = tuned.tuning, tuned.halving
    names = [tuning.label(point) for point in range(len(tuning.points))]
    return {
        "by": tuning.measure,
        "about": tuning.about,
        "target": tuning.target,
        "share": tuning.devices if tuning.measure == ROUNDS else None,
        "seeds": list(tuning.seeds),
        "grid": {key: list(values) for key, values in tuning.grid.items()},
        "best": tuned.best,
        "edges": tuned.edges,
        "notes": list(notes(tuned)),
        "heats": [{"points": [names[point] for point in heat.points], "seeds": heat.seeds} for heat in halving.heats],
    }
