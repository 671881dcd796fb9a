"""The command that weighs a table of clients, without any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Force, Json, app, err_console, out_console
from fedmerit.errors import ConfigError, UserError, did_you_mean
from fedmerit.store.strict_json import dump_json

MANY = 50
"""Clients above which the screen shows the ends alone, and reasons are told of one client when asked."""
END = 25
"""Of many clients, so many of the heaviest and of the lightest are shown."""


@app.command(epilog="Example:  fedmerit weigh clients.csv --priority CB,DS --lower-is-better error")
def weigh(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV or xlsx, a line per client: client,DS,CB,...; - for stdin.")
    ],
    priority: Annotated[str, typer.Option(help="Columns, most important first: DS,CB,IS.", show_default=False)],
    score: Annotated[
        str, typer.Option(help="The operator: a name, or a table such as '{name=\"owa\", weights=[0.5, 0.3, 0.2]}'.")
    ] = "prioritized",
    normalise: Annotated[str, typer.Option(help="max, sum, minmax, scale, or none (degrees in 0..1).")] = "max",
    scales: Annotated[
        str | None, typer.Option(help="For scale: the largest value of a column that counts, '{DS=500}'; others: 1.")
    ] = None,
    lower: Annotated[
        list[str] | None,
        typer.Option("--lower-is-better", metavar="COLUMN", help="A column in which less is better; repeatable."),
    ] = None,
    cap: Annotated[
        float | None, typer.Option(help="A client gets at most this many times the equal share.", show_default=False)
    ] = None,
    client: Annotated[str | None, typer.Option(help="Say why of this client, in full.", show_default=False)] = None,
    html: Annotated[Path | None, typer.Option(help="Write weights and reasons to this new HTML file.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn a table of criteria into weights, without any training: what if?

    FILE has a header and a line per client, for example client,DS,CB,IS, separated by commas, semicolons or tabs; of
    an xlsx file (the extra `data` reads it) the first sheet counts.
    0.5, 0,5 and 50 % are the same number. Where less is better, a value counts as largest + smallest - value.
    """
    import numpy as np

    from fedmerit.cli.criteria_file import read_criteria
    from fedmerit.config.recipe import make_limit, make_normalise, make_score, split_names
    from fedmerit.config.schema import parse_value
    from fedmerit.core.reasons import Rule, explain
    from fedmerit.core.weights.weigh import Scale, by_client, normalise_name
    from fedmerit.core.weights.weigh import weigh as weigh_table

    names = tuple(split_names(priority))
    table = read_criteria(file)
    if not names:
        raise ConfigError(f"--priority names at least one column of {', '.join(table.names)}")
    raw = table.columns(names, lower or [])
    sizes = table.columns(["DS"])[:, 0] if "DS" in table.names else np.zeros(len(raw))
    columns = parse_value(normalise)
    if scales is not None:
        if columns != "scale":
            raise ConfigError(f"--scales has no effect with --normalise {normalise}; use --normalise scale")
        columns = {"name": "scale", "bounds": parse_value(scales)}
    operator = parse_value(score)
    rule = Rule(
        names,
        make_score(operator, names, "--score"),
        make_normalise(columns, "--normalise"),
        tuple(sizes if sizes.any() else np.ones(len(raw))),
    )
    if isinstance(rule.normalise, Scale):
        rule.normalise.check(names, counts=())
    if client is not None and client not in table.clients:
        raise UserError(f"the file has no client {client!r}{did_you_mean(client, table.clients)}")
    result = weigh_table(raw, names, rule.score, rule.normalise, np.array(rule.fallback))
    if cap is not None:
        result = make_limit({"name": "cap", "times": cap}, "--cap")(result, {})
    samples = sizes.tolist() if sizes.any() else None
    asked = [table.clients.index(client)] if client is not None else range(len(raw)) if len(raw) <= MANY else []
    reasons = {place: explain(raw, place, rule, kept=float(result.weights[place]), samples=samples) for place in asked}
    shown_score = operator.get("name", "prioritized") if isinstance(operator, dict) else operator
    title = f"{' > '.join(rule.priority)}   score {shown_score}, normalise {normalise_name(rule.normalise)}"
    if html is not None:
        from fedmerit.report.weights_page import write_weights_page

        write_weights_page(html, title, rule.priority, table.clients, result, reasons, force=force)
    if as_json:
        told = {table.clients[place]: "\n".join(one.lines(table.clients[place])) for place, one in reasons.items()}
        values = {"scores": result.scores.tolist(), "weights": result.weights.tolist(), "reasons": told}
        values |= {} if result.uncapped is None else {"uncapped": result.uncapped.tolist()}
        typer.echo(dump_json({"clients": table.clients, **values}))
        return
    from fedmerit.report.screen import show_note, weights_table

    shown = list(range(len(raw)))
    if len(shown) > MANY:
        order = np.argsort(-result.weights, kind="stable").tolist()
        shown = [*order[:END], *order[-END:]]
        title += f"; the {END} heaviest and the {END} lightest of {len(raw):,}, --json and --html have all"
    rows = by_client(result.take(shown), rule.priority, shown, {})
    out_console.print(weights_table(title, rule.priority, rows, table.clients))
    for place, reason in reasons.items():
        name = table.clients[place]
        lines = reason.lines(name) if client is not None else [reason.sentence(name)]
        out_console.print(*lines, sep="\n", markup=False)
    for note in result.notes:
        show_note(err_console, note, "note: ")
    if html is not None:
        out_console.print(f"page: {html}", markup=False)
