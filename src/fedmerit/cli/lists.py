"""`fedmerit list`: the tasks, recipes, criteria, scores and objectives that a configuration can name."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from fedmerit.cli.app import Json, app, show

Table: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, a header and rows."""


class What(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    RECIPES = "recipes"
    CRITERIA = "criteria"
    SCORES = "scores"
    OBJECTIVES = "objectives"


@app.command("list", epilog="Example:  fedmerit list criteria --all")
def list_parts(
    what: Annotated[What, typer.Argument(metavar="WHAT", help=", ".join(What) + ".", show_default=False)],
    everything: Annotated[bool, typer.Option("--all", help="Also list rare criteria, and tasks' partitions.")] = False,
    as_json: Json = False,
) -> None:
    """List tasks, recipes, criteria, scores or objectives."""
    from fedmerit.report.screen import list_table

    title, header, rows = LISTS[what](everything)
    values = [dict(zip(header, row, strict=True)) for row in rows]
    show(values, lambda: [list_table(title, header, rows)], as_json)
    if what is What.CRITERIA and not everything and not as_json:
        typer.echo("`fedmerit list criteria --all` shows every criterion.")


def _tasks(everything: bool) -> Table:
    from fedmerit.tasks.registry import TASKS, find_task

    kinds = map(find_task, [*TASKS, "table:FILE"])
    header = ("task", "about", "partitions", "models") if everything else ("task", "about", "models")
    rows = [
        (kind.name, kind.about, *([", ".join(kind.partitions)] if everything else []), ", ".join(kind.models))
        for kind in kinds
    ]
    return "Tasks (task.data)", header, rows


def _recipes(everything: bool) -> Table:
    from fedmerit.core.recipes import RECIPES, SETTINGS_NOT_RECIPES

    rows = [(name, recipe[1]) for name, recipe in RECIPES.items()]
    rows += [
        (f"({name})", f"a setting: {setting.partition(' with any')[0]}")
        for name, setting in SETTINGS_NOT_RECIPES.items()
    ]
    return "Recipes (recipe.name)", ("recipe", "about"), rows


def _criteria(everything: bool) -> Table:
    from fedmerit.core.criteria.client_fact import ClientFact
    from fedmerit.core.criteria.table import COMMON, CRITERIA, Attribute, display_name

    shown = [criterion for name, criterion in CRITERIA.items() if everything or name in COMMON]
    rows = [
        *((display_name(c.name), c.name, c.about.removeprefix(f"{display_name(c.name)}: ")) for c in shown),
        *((c.name, "", c.about) for c in (ClientFact("NAME"), Attribute("NAME"))),
        ("validated:OBJECTIVE", "", "an objective of `fedmerit list objectives`, measured by the server"),
    ]
    if everything:
        rows += [
            ("contribution:METHOD", "", "what an update adds to the model: shapley, banzhaf, cosine ..."),
            ("reputation:CRITERION", "", "running mean of another criterion over the rounds"),
        ]
    return "Criteria (recipe.criteria)", ("criterion", "symbol", "about"), rows


def _scores(everything: bool) -> Table:
    from fedmerit.config.recipe import SCORES
    from fedmerit.core.parts import settings

    rows = [(name, first_line(score), ", ".join(settings(score))) for name, score in SCORES.items()]
    return "Scores (recipe.score)", ("score", "about", "options"), rows


def _objectives(everything: bool) -> Table:
    from fedmerit.core.objectives import BY_CLASS, GROUPED, OVERALL, ByClass

    rows = [
        *((name, first_line(make)) for name, make in OVERALL.items()),
        *((f"{name}:CLASS", first_line(ByClass)) for name in BY_CLASS),
        *((f"{name}:ATTRIBUTE", first_line(make)) for name, make in GROUPED.items()),
    ]
    return "Objectives (run.measure, run.audit, validated:OBJECTIVE)", ("objective", "about"), rows


LISTS: dict[What, Callable[[bool], Table]] = {
    What.TASKS: _tasks,
    What.RECIPES: _recipes,
    What.CRITERIA: _criteria,
    What.SCORES: _scores,
    What.OBJECTIVES: _objectives,
}


def first_line(make: Callable[..., object]) -> str:
    """Return the first line of a docstring."""
    return (make.__doc__ or "").partition("\n")[0]
