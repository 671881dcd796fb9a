"""Commands for experts: what clients' facts are before any training, and what another priority would have given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedmerit.cli.app import Json, RunFolder, app, open_run, out_console
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.core.types import Vector
    from fedmerit.core.weights.weigh import Normalise
    from fedmerit.tasks.federation import Federation

SHOWN = 20
"""Clients, or criteria, on the screen."""
MOVED = (
    "moved: the share of weight that changes hands, against equal weights, where the criterion alone decides; from 1 % "
    "on it separates the clients"
)
NOTHING_TRAINED = "nothing was trained: with other weights the models, and all that follows them, would be others"


@app.command(epilog="Example:  fedmerit facts examples/digits.toml")
def facts(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What would be run.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. task.clients=20; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure all clients' facts without training, and say which criteria tell them apart.

    A criterion separates clients if, deciding alone, it moves at least 1 % of the weight against equal weights.
    """
    from fedmerit.config.privacy import recipe_of
    from fedmerit.config.schema import load_config
    from fedmerit.engine.measured import measured_facts, readable_criteria, separations
    from fedmerit.report.screen import wide_tables
    from fedmerit.tasks.registry import make_task

    settings = load_config(config, overrides or [])
    federation, recipe = make_task(settings).federation, recipe_of(settings)
    found = measured_facts(federation, recipe.criteria)
    lines = separations(found, readable_criteria(found, recipe.criteria))
    own = [one.name for one in recipe.criteria]
    if as_json:
        clients = {
            name: {fact: float(values[client]) for fact, values in found.items()}
            for client, name in enumerate(federation.names)
        }
        criteria = {line.criterion: {"moved": line.moved, "separates": line.separates} for line in lines}
        typer.echo(dump_json({"clients": clients, "criteria": criteria}))
        return
    columns = dict(_columns(federation, found))
    shown = [
        (name, *(values[client] for values in columns.values())) for client, name in enumerate(federation.names[:SHOWN])
    ]
    out_console.print(*wide_tables("Facts before training", ("client", *columns), shown, out_console.width), sep="\n")
    _and_more(len(federation.names))
    rows = [
        (
            line.criterion,
            *(f"{value:.4g}" for value in (line.least, line.median, line.largest)),
            f"{line.moved:.1%}",
            "yes" if line.separates else "no",
        )
        for place, line in enumerate(lines)
        if place < SHOWN or line.criterion in own
    ]
    header = ("criterion", "least", "median", "largest", "moved", "separates")
    title = "Criteria that these facts suffice for"
    out_console.print(*wide_tables(title, header, rows, out_console.width), sep="\n")
    _and_more(len(lines), len(rows))
    unknown = [name for name in own if name not in {line.criterion for line in lines}]
    if unknown:
        out_console.print(f"known only when clients have trained: {', '.join(unknown)}", markup=False)
    out_console.print(MOVED, style="dim", markup=False)


def _columns(federation: Federation, found: Mapping[str, Vector]) -> Iterator[tuple[str, list[str]]]:
    """The facts as columns of texts; of a fact in words, the words."""
    from fedmerit.core.facts import CLIENT_FACT, IS_WORD

    told = set[str]()
    for fact, values in found.items():
        own, is_word, _ = fact.partition(IS_WORD)
        if not is_word:
            yield fact, [f"{value:.4g}" for value in values]
        elif own not in told:
            told.add(own)
            yield own, [str(value) for value in federation.facts[own.removeprefix(CLIENT_FACT)]]


def _and_more(number: int, shown: int = SHOWN) -> None:
    if number > shown:
        out_console.print(f"... and {number - shown} more; --json has all", style="dim")


@app.command("what-if", epilog="Example:  fedmerit what-if runs/first --priority CB,DS --normalise max")
def what_if(
    folder: RunFolder,
    priority: Annotated[str, typer.Option(help="The criteria, most important first: CB,DS.", show_default=False)],
    normalise: Annotated[str | None, typer.Option(help="sum, max, minmax, none; default: as the run did.")] = None,
    number: Annotated[int | None, typer.Option("--round", help="One round alone; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Weigh a finished run's rounds again by another priority; nothing is trained.

    DIR is a folder made by `fedmerit run`. Facts of rows that the run did not keep are measured now, from the data
    that its configuration names. Another weighting would have led to other models: read it as a look at the weights,
    not at accuracy.
    """
    import numpy as np

    from fedmerit.core.parts import name_of
    from fedmerit.errors import UserError
    from fedmerit.report.screen import list_table
    from fedmerit.store.what_if import missing_facts, rescored, reweigh

    names = [name.strip() for name in priority.replace(">", ",").split(",") if name.strip()]
    with open_run(folder) as ledger:
        clients, score = ledger.names(), rescored(ledger)
        measured = _measured(folder, clients, missing_facts(ledger, names))
        rounds = reweigh(ledger, names, cast("Normalise | None", normalise), measured)
    rounds = [one for one in rounds if number is None or one.round == number]
    if not rounds:
        raise UserError(f"nobody was weighed in round {number}")
    before, after = np.zeros(len(clients)), np.zeros(len(clients))
    for one in rounds:
        before[list(one.clients)] += one.before / len(rounds)
        after[list(one.clients)] += one.after / len(rounds)
    moved = float(np.mean([one.moved for one in rounds]))
    if as_json:
        lines = [{"client": name, "before": before[i], "after": after[i]} for i, name in enumerate(clients)]
        told = {"priority": names, "moved": moved, "rounds": len(rounds), "measured": list(measured)}
        typer.echo(dump_json(told | {"clients": lines}))
        return
    order = np.argsort(-np.abs(after - before), kind="stable")[:SHOWN]
    rows = [(clients[i], f"{before[i]:.2%}", f"{after[i]:.2%}", f"{after[i] - before[i]:+.2%}") for i in order]
    by = name_of(score)
    of = f"mean of {len(rounds)} rounds" if len(rounds) > 1 else f"round {rounds[0].round}"
    title = f"{' > '.join(names)}, {by}: {moved:.1%} of the weight changes hands, {of}"
    out_console.print(list_table(title, ("client", "share had", "would have", "change"), rows))
    _and_more(len(clients))
    if measured:
        out_console.print(
            f"measured now, since the run did not keep it: {', '.join(measured)}", style="dim", markup=False
        )
    out_console.print(NOTHING_TRAINED, style="dim", markup=False)


def _measured(folder: Path, clients: Sequence[str], missing: Sequence[str]) -> dict[str, Vector]:
    """Facts that a run did not keep, of all its clients, where its configuration says which rows they have."""
    from fedmerit.config.schema import load_config
    from fedmerit.core.facts import find_fact
    from fedmerit.engine.measured import fact_of_clients
    from fedmerit.errors import UserError
    from fedmerit.store.run_folder import CONFIG
    from fedmerit.tasks.registry import make_task

    wanted = [fact for fact in missing if find_fact(fact).measure is not None]
    if not wanted or not (folder / CONFIG).is_file():
        return {}
    try:
        federation = make_task(load_config(folder / CONFIG)).federation
        if list(federation.names) != list(clients):
            raise UserError("its data has other clients by now")
        return {fact: fact_of_clients(federation, fact) for fact in wanted}
    except UserError as error:
        raise UserError(
            f"the run kept no {', '.join(wanted)}, and from its configuration it cannot be measured now: {error}"
        ) from None
