"""Output of an attack grid: tables for the screen and for Markdown, JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fedmerit.study.attack_grid import Grid, Score
from fedmerit.study.attack_plan import NONE
from fedmerit.study.text_table import TextTable

UNKNOWN = "-"
MISSED = "!"
"""After a number that misses its bound."""


def grid_tables(grid: Grid) -> Iterator[TextTable]:
    """The worst case of each recipe, then for each share accuracy, success, weight and suspects by attack."""
    yield worst_table(grid)
    yield honest_table(grid)
    for share in grid.plan.shares:
        yield accuracy_table(grid, share)
        yield detail_table(grid, share)


def worst_table(grid: Grid) -> TextTable:
    """The lowest accuracy over all attacks, per recipe and share."""
    honest = {score.row: score for score in grid.scores if score.attack == NONE}
    rows = [
        (score.row, f"{score.share:.0%}", number(honest[score.row].accuracy), marked(score, "drop"), score.attack)
        for score in grid.worst()
    ]
    title = f"{grid.plan.name}: worst accuracy over {len(grid.plan.attacks)} attacks, mean over {seeds_text(grid)}"
    below = f"{MISSED}: lost more than {grid.plan.bounds.drop:g} against no attack"
    return TextTable(title, ("recipe", "attackers", "no attack", "worst", "under"), tuple(rows), (below,))


def honest_table(grid: Grid) -> TextTable:
    """Accuracy and false alarms where nobody attacks."""
    rows = [
        (score.row, number(score.accuracy), number(score.false_alarms)) for score in grid.scores if score.attack == NONE
    ]
    below = "false alarms: the share of honest clients that are suspected"
    return TextTable(
        f"{grid.plan.name}: without attackers", ("recipe", "accuracy", "false alarms"), tuple(rows), (below,)
    )


def accuracy_table(grid: Grid, share: float) -> TextTable:
    """Final accuracy, recipes by attacks."""
    attacks = [NONE, *_attacks(grid)]
    scores = {(score.row, score.attack): score for score in grid.scores if score.share in (0.0, share)}
    rows = [(row.name, *(marked(scores[row.name, attack], "drop") for attack in attacks)) for row in grid.plan.rows]
    title = f"{grid.plan.name}: accuracy with {share:.0%} attackers"
    return TextTable(title, ("recipe", *attacks), tuple(rows))


def detail_table(grid: Grid, share: float) -> TextTable:
    """What attackers achieved and hold, and whether they are suspected, a line per attack and recipe."""
    rows = [
        (
            f"{score.attack}: {score.row}",
            marked(score, "success"),
            marked(score, "weight"),
            number(score.heads),
            number(score.precision),
            number(score.recall),
        )
        for score in grid.scores
        if score.share == share
    ]
    bounds = grid.plan.bounds
    below = (
        f"{MISSED}: success above {bounds.success:g}, or weight above {bounds.weight:g} times the heads",
        "success: rows that get the label the attackers want; weight and heads: the attackers' share of each; "
        "precision and recall: of the suspects",
    )
    header = ("attack", "success", "weight", "heads", "precision", "recall")
    return TextTable(f"{grid.plan.name}: {share:.0%} attackers in detail", header, tuple(rows), below)


def grid_dict(grid: Grid) -> dict[str, Any]:
    """The grid as JSON has it: NaN is null."""
    return {
        "name": grid.plan.name,
        "seeds": list(grid.plan.seeds),
        "shares": list(grid.plan.shares),
        "attacks": _attacks(grid),
        "rows": [row.name for row in grid.plan.rows],
        "bounds": grid.plan.bounds.model_dump(),
        "scores": [_score_dict(score) for score in grid.scores],
        "worst": [_score_dict(score) for score in grid.worst()],
        "failed": dict(grid.failed),
    }


def grid_markdown(grid: Grid, command: str) -> str:
    """The grid as a page, with the command that makes it again."""
    run = grid.plan.cells()[0].plan.config(grid.plan.rows[0], grid.plan.seeds[0])
    about = (
        f"{run.task.data}, partition {run.task.partition}, {run.task.clients or 'all'} clients, a share of "
        f"{run.run.fraction:g} in each of {run.run.rounds} rounds; seeds {', '.join(map(str, grid.plan.seeds))}."
    )
    head = ["# Attacks", "", about, "", "Made by one command:", "", "```", command, "```", ""]
    return "\n".join([*head, *(table.markdown() for table in grid_tables(grid))])


def seeds_text(grid: Grid) -> str:
    """How many seeds."""
    return "1 seed" if len(grid.plan.seeds) == 1 else f"{len(grid.plan.seeds)} seeds"


def number(value: float) -> str:
    """Three digits after the point."""
    return UNKNOWN if math.isnan(value) else f"{value:.3f}"


def marked(score: Score, bound: str) -> str:
    """The number that a bound is about, with a mark where it is missed."""
    value = {"drop": score.accuracy, "success": score.success, "weight": score.weight}[bound]
    return number(value) + (MISSED if bound in score.missed else "")


def _attacks(grid: Grid) -> list[str]:
    return [attack for attack in dict.fromkeys(score.attack for score in grid.scores) if attack != NONE]


def _score_dict(score: Score) -> dict[str, Any]:
    values = asdict(score)
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}
