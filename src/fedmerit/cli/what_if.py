"""`fedmerit what-if`: the weights that another priority would have given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedmerit.cli.app import Json, Reading, RunFolder, Trust, app, open_run, out_console
from fedmerit.store.strict_json import dump_json

if TYPE_CHECKING:
    from fedmerit.core.types import Vector
    from fedmerit.core.weights.weigh import Normalise
    from fedmerit.store.ledger import Ledger

SHOWN = 20
"""Clients on the screen."""
NOTHING_TRAINED = "This only recomputes weights. Retraining with them would give a different model."


@app.command("what-if", cls=Reading, epilog="Example:  fedmerit what-if runs/first --priority CB,DS")
def what_if(
    folder: RunFolder,
    priority: Annotated[str, typer.Option(help="Criteria, most important first: CB,DS.", show_default=False)],
    normalise: Annotated[
        str | None,
        typer.Option(
            help="max, sum, minmax or none; default: the run's.",
            show_default=False,
        ),
    ] = None,
    number: Annotated[int | None, typer.Option("--round", help="Only this round; default: all.")] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Recompute a run's weights for another priority, without training.

    Facts that the run did not record are measured now, from the data that its configuration names. Training with
    these weights would give other models, so this compares weights, not accuracy.
    """
    import numpy as np

    from fedmerit.config.recipe import split_names
    from fedmerit.core.criteria.table import display_priority
    from fedmerit.core.parts import name_of
    from fedmerit.errors import UserError
    from fedmerit.report.screen import list_table
    from fedmerit.store.what_if import missing_facts, rescored, reweigh, run_priority

    with open_run(folder) as ledger:
        names = run_priority(ledger, split_names(priority))
        clients, score = ledger.names(), rescored(ledger)
        measured = _measured(ledger, missing_facts(ledger, names), trust)
        rounds = reweigh(ledger, names, cast("Normalise | None", normalise), measured)
    rounds = [round for round in rounds if number is None or round.round == number]
    if not rounds:
        raise UserError(f"no client has a weight in round {number}; give another --round")
    before, after = np.zeros(len(clients)), np.zeros(len(clients))
    for round in rounds:
        before[list(round.clients)] += round.before / len(rounds)
        after[list(round.clients)] += round.after / len(rounds)
    moved = float(np.mean([round.moved for round in rounds]))
    if as_json:
        lines = [{"client": name, "before": before[i], "after": after[i]} for i, name in enumerate(clients)]
        values = {"priority": names, "moved": moved, "rounds": len(rounds), "measured": list(measured)}
        typer.echo(dump_json(values | {"clients": lines}))
        return
    order = np.argsort(-np.abs(after - before), kind="stable")[:SHOWN]
    rows = [(clients[i], f"{before[i]:.2%}", f"{after[i]:.2%}", f"{after[i] - before[i]:+.2%}") for i in order]
    by = name_of(score)
    of = f"mean of {len(rounds)} rounds" if len(rounds) > 1 else f"round {rounds[0].round}"
    title = f"{display_priority(names)}, {by}: {moved:.1%} of the weight moves, {of}"
    out_console.print(list_table(title, ("client", "weight", "new weight", "change"), rows))
    if len(clients) > SHOWN:
        out_console.print(f"... and {len(clients) - SHOWN} more; --json has all", style="dim")
    if measured:
        out_console.print(
            f"measured now, because the run did not record it: {', '.join(measured)}", style="dim", markup=False
        )
    out_console.print(NOTHING_TRAINED, style="dim", markup=False)


def _measured(ledger: Ledger, missing: Sequence[str], trust: bool) -> dict[str, Vector]:
    """Measure facts that a run did not record, from the rows that its configuration names."""
    from fedmerit.config.schema import make_config
    from fedmerit.config.trust import only_trusted_parts
    from fedmerit.core.facts import find_fact
    from fedmerit.engine.measured import fact_of_clients
    from fedmerit.errors import UserError
    from fedmerit.store.strict_json import load_json
    from fedmerit.tasks.registry import make_task

    wanted, config = [fact for fact in missing if find_fact(fact).measure is not None], ledger.meta().get("config")
    if not wanted or config is None:
        return {}
    try:
        with only_trusted_parts(trust):
            federation = make_task(make_config(load_json(config, "the configuration in the ledger"))).federation
        if list(federation.names) != ledger.names():
            raise UserError("its data now has other clients")
        return {fact: fact_of_clients(federation, fact) for fact in wanted}
    except UserError as error:
        raise UserError(f"the run did not record {', '.join(wanted)}, and it cannot be measured now: {error}") from None
