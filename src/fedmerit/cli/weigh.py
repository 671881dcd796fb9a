"""The command that turns a table of clients into weights, without training."""

from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Force, Json, app, err_console, out_console
from fedmerit.errors import ConfigError, UserError, did_you_mean
from fedmerit.store.strict_json import dump_json

MANY = 50
"""With more clients the screen shows only both ends of the table, and only --client gets a reason."""
END = 25
"""Of many clients, the number of largest and of smallest weights that are shown."""


@app.command(epilog='Example:  fedmerit weigh clients.csv --priority "class balance > dataset size"')
def weigh(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV or xlsx with a header and a line per client; - for stdin.")
    ],
    priority: Annotated[
        str, typer.Option(help='Columns, most important first: "class balance > dataset size".', show_default=False)
    ],
    score: Annotated[
        str,
        typer.Option(
            help="A name (`fedmerit list scores`), or '{name=\"owa\", weights=[0.7, 0.3]}'.",
        ),
    ] = "prioritized",
    normalise: Annotated[
        str,
        typer.Option(
            help="max, sum, minmax, none (values in 0..1), or '{name=\"scale\", bounds={DS=500}}'.",
        ),
    ] = "max",
    lower: Annotated[
        list[str] | None,
        typer.Option("--lower-is-better", metavar="COLUMN", help="Lower is better in this column; repeatable."),
    ] = None,
    cap: Annotated[
        float | None, typer.Option(help="A client gets at most this many times the equal share.", show_default=False)
    ] = None,
    client: Annotated[str | None, typer.Option(help="Explain this client in full.", show_default=False)] = None,
    html: Annotated[Path | None, typer.Option(help="Write weights and reasons to this new HTML file.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn a table of clients into weights, with a reason for each.

    FILE has a header and a line per client, for example client,DS,CB. Commas, semicolons or tabs separate cells; of an
    xlsx file (the extra `data` reads it) the first sheet is used. 0.5, 0,5 and 50 % are the same number.
    A column is a known criterion (DS or "dataset size") or any number. With --lower-is-better a value counts as
    largest + smallest - value.
    """
    from dataclasses import replace

    import numpy as np

    from fedmerit.cli.criteria_file import read_criteria
    from fedmerit.config.recipe import make_limit, make_normalise, make_score, split_names
    from fedmerit.config.sections import parse_value
    from fedmerit.core.criteria.table import display_name, symbol_of
    from fedmerit.core.reasons import LOWER, Rule, explain
    from fedmerit.core.showing import shown
    from fedmerit.core.weights.weigh import Scale, by_client, normalise_name
    from fedmerit.core.weights.weigh import weigh as weigh_table

    table = read_criteria(file)
    columns = [table.column_name(name) for name in split_names(priority)]
    if not columns:
        raise ConfigError(f"--priority needs at least one column of {shown(table.names)}")
    names = tuple(map(symbol_of, columns))  # "dataset size" and DS are one criterion
    downward = tuple(symbol_of(table.column_name(name)) for name in lower or ())
    if idle := [name for name in downward if name not in names]:
        raise ConfigError(f"--lower-is-better {idle[0]} has no effect: add it to --priority {','.join(names)}")
    raw = table.columns(columns)
    size = [name for name in table.names if symbol_of(name) == "DS"]
    sizes = table.columns(size)[:, 0] if size else np.zeros(len(raw))
    operator = parse_value(score)
    rule = Rule(
        names,
        make_score(operator, names, "--score"),
        make_normalise(parse_value(normalise), "--normalise"),
        tuple(sizes if sizes.any() else np.ones(len(raw))),
        downward,
    )
    if isinstance(rule.normalise, Scale):
        rule.normalise.check(names, counts=())
    if client is not None and client not in table.clients:
        raise UserError(f"the file has no client {client!r}{did_you_mean(client, table.clients)}")
    result = weigh_table(rule.upward(raw), names, rule.score, rule.normalise, np.array(rule.fallback))
    result = replace(result, raw=raw)  # people read the values of their file
    if cap is not None:
        result = make_limit({"name": "cap", "times": cap}, "--cap")(result, {})
    samples = sizes.tolist() if sizes.any() else None
    asked = [table.clients.index(client)] if client is not None else range(len(raw)) if len(raw) <= MANY else []
    reasons = {place: explain(raw, place, rule, kept=float(result.weights[place]), samples=samples) for place in asked}
    shown_score = operator.get("name", "prioritized") if isinstance(operator, dict) else operator
    shown_names = (display_name(name) + LOWER * (name in downward) for name in names)
    title = f"{' > '.join(shown_names)}   score {shown_score}, normalise {normalise_name(rule.normalise)}"
    if html is not None:
        from fedmerit.report.weights_page import write_weights_page

        write_weights_page(html, title, rule.priority, table.clients, result, reasons, force=force)
    if as_json:
        told = {table.clients[place]: "\n".join(one.lines(table.clients[place])) for place, one in reasons.items()}
        values = {"scores": result.scores.tolist(), "weights": result.weights.tolist(), "reasons": told}
        values |= {} if result.uncapped is None else {"uncapped": result.uncapped.tolist()}
        typer.echo(dump_json({"clients": table.clients, **values}))
        return
    from fedmerit.report.screen import weights_table

    places = list(range(len(raw)))
    if len(places) > MANY:
        order = np.argsort(-result.weights, kind="stable").tolist()
        places = [*order[:END], *order[-END:]]
        title += f"; the {END} largest and the {END} smallest of {len(raw):,} weights, --json and --html have all"
    rows = by_client(result.take(places), rule.priority, places, {})
    out_console.print(weights_table(title, rule.priority, rows, table.clients))
    for place, reason in reasons.items():
        name = table.clients[place]
        lines = reason.lines(name) if client is not None else [reason.sentence(name)]
        out_console.print(*lines, sep="\n", markup=False)
    for note in result.notes:
        err_console.print(f"note: {note.text}", style="yellow", markup=False)
    if html is not None:
        out_console.print(f"page: {html}", markup=False)
