"""The page of an attack grid: one HTML file with a heat map per share of attackers, red where a bound is missed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from string import Template

from fedmerit.report.html import read_part
from fedmerit.study.attack_grid import Grid, Score
from fedmerit.study.attack_output import number, seeds_text
from fedmerit.study.attack_plan import NONE

PAGE = "attack.html"
STYLES = ("colours.css", "report.css", "tables.css", "attack.css")
WORDS = {"drop": "accuracy", "success": "success", "weight": "weight"}
"""What a missed bound is about."""


def attack_page(grid: Grid) -> str:
    """The whole page."""
    bounds = grid.plan.bounds
    lead = (
        f"{len(grid.plan.attacks)} attacks on {len(grid.plan.rows)} recipes, means over {seeds_text(grid)}. A cell "
        f"is red where accuracy falls by more than {bounds.drop:g} against the same recipe without attackers, where "
        f"more than {bounds.success:.0%} of the rows get the label that attackers want, or where attackers hold "
        f"more than {bounds.weight:g} times their share of heads."
    )
    return Template(read_part(PAGE)).substitute(
        title=escape(f"Attacks: {grid.plan.name}"),
        style="\n".join(map(read_part, STYLES)),
        lead=escape(lead),
        sections="\n".join([_worst(grid), *(_heat_map(grid, share) for share in grid.plan.shares)]),
    )


def _worst(grid: Grid) -> str:
    honest = {score.row: score.accuracy for score in grid.scores if score.attack == NONE}
    rows = "".join(
        f'<tr><th scope="row">{escape(score.row)}</th><td class="number">{score.share:.0%}</td>'
        f'<td class="number">{number(honest[score.row])}</td><td class="number">{number(score.accuracy)}</td>'
        f"<td>{escape(score.attack)}</td></tr>"
        for score in grid.worst()
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Recipe", "Attackers", "No attack", "Worst", "Under"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return _section("worst", "Worst case over all attacks", table)


def _heat_map(grid: Grid, share: float) -> str:
    """Recipes by attacks: accuracy large, and below it what else is known."""
    scores = {(score.row, score.attack): score for score in grid.scores if score.share in (0.0, share)}
    attacks = list(dict.fromkeys(attack for _, attack in scores))
    head = "".join(f'<th scope="col">{escape(attack)}</th>' for attack in attacks)
    rows = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>'
        + "".join(_cell(scores[row.name, attack], grid.plan.bounds.drop) for attack in attacks)
        + "</tr>"
        for row in grid.plan.rows
    )
    key = (
        '<ul class="key"><li><span></span>nothing lost</li><li><span class="lost"></span>more lost</li>'
        '<li><span class="missed"></span>a bound is missed, and named</li></ul>'
    )
    table = (
        f'<table class="heat"><thead><tr><th scope="col">Recipe</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )
    return _section(f"share-{share:g}".replace(".", "-"), f"{share:.0%} of the clients attack", table, key)


def _section(name: str, title: str, table: str, key: str = "") -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(title)}</h2>{key}'
        f'<div class="scroll" role="region" aria-label="{escape(title)}" tabindex="0">{table}</div></section>'
    )


def _cell(score: Score, most: float) -> str:
    """The darker, the nearer the lost accuracy is to its bound."""
    if math.isnan(score.accuracy):
        return '<td class="unknown">not run</td>'
    lost = 0 if math.isnan(score.drop) else round(100 * min(max(score.drop / most, 0.0), 1.0))
    lines = "".join(f"<small>{escape(line)}</small>" for line in _lines(score))
    kind = ' class="missed"' if score.missed else ""
    return f'<td{kind} style="--lost: {lost}%"><strong>{number(score.accuracy)}</strong>{lines}</td>'


def _lines(score: Score) -> Iterator[str]:
    """What stands below the accuracy; first the bounds that are missed, so that red is not the only sign."""
    if score.missed:
        yield f"missed: {', '.join(WORDS[name] for name in score.missed)}"
    if not math.isnan(score.success):
        yield f"success {score.success:.0%}"
    if not math.isnan(score.weight):
        yield f"weight {score.weight:.0%} of {score.heads:.0%}"
    if not math.isnan(score.recall):
        yield f"suspects {score.recall:.0%}"
