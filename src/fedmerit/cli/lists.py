"""Commands that list the parts: tasks, recipes, scores, criteria, objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedmerit.cli.app import Json, app, show


@app.command(epilog="Example:  fedmerit tasks --json")
def tasks(as_json: Json = False) -> None:
    """List the tasks: data, partitions, models."""
    from fedmerit.tasks.registry import TASKS, find_task

    rows = [
        (k.name, k.about, ", ".join(k.partitions), ", ".join(k.models)) for k in map(find_task, [*TASKS, "table:FILE"])
    ]
    _list("Tasks (task.data)", ("task", "about", "partitions", "models"), rows, as_json)


@app.command(epilog="Example:  fedmerit recipes")
def recipes(as_json: Json = False) -> None:
    """List the recipes."""
    from fedmerit.core.recipes import RECIPES

    _list("Recipes (recipe.name)", ("recipe", "about"), [(name, one[1]) for name, one in RECIPES.items()], as_json)


@app.command(epilog="Example:  fedmerit scores --json")
def scores(as_json: Json = False) -> None:
    """List the scores: how criteria become one number."""
    from fedmerit.config.recipe import SCORES
    from fedmerit.core.parts import settings

    rows = [(name, first_line(score), ", ".join(settings(score))) for name, score in SCORES.items()]
    _list("Scores (recipe.score)", ("score", "about", "options"), rows, as_json)


@app.command(epilog="Example:  fedmerit criteria")
def criteria(as_json: Json = False) -> None:
    """List the criteria, their family and the facts they need."""
    from fedmerit.core.criteria.client_fact import ClientFact
    from fedmerit.core.criteria.table import CRITERIA, Attribute

    known = [*CRITERIA.values(), Attribute("NAME"), ClientFact("NAME")]
    rows = [
        *((c.name, str(c.family), ", ".join(c.required_facts) or "(server)", c.about) for c in known),
        ("validated:OBJECTIVE", "target", "(server)", "an objective of `fedmerit objectives` at the server"),
        ("contribution:METHOD", "target", "(server)", "what an update adds: shapley, banzhaf, cosine ..."),
        ("reputation:CRITERION", "trust", "(its own)", "running mean of any other criterion over the rounds"),
    ]
    _list("Criteria (recipe.criteria)", ("criterion", "family", "facts", "about"), rows, as_json)


@app.command(epilog="Example:  fedmerit objectives --json")
def objectives(as_json: Json = False) -> None:
    """List the objectives: what the server measures of a model on its own rows."""
    from fedmerit.core.objectives import GROUPED, OVERALL, Recall

    rows = [
        *((name, first_line(made)) for name, made in OVERALL.items()),
        ("recall:CLASS", first_line(Recall)),
        *((f"{name}:ATTRIBUTE", first_line(made)) for name, made in GROUPED.items()),
    ]
    _list("Objectives (validated:OBJECTIVE, run.audit)", ("objective", "about"), rows, as_json)


def first_line(made: Callable[..., object]) -> str:
    """What a function's docstring says first."""
    return (made.__doc__ or "").partition("\n")[0]


def _list(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool) -> None:
    from fedmerit.report.screen import list_table

    values = [dict(zip(header, row, strict=True)) for row in rows]
    show(values, lambda: [list_table(title, header, rows)], as_json)
