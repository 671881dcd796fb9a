"""Reasons of a run: why its clients got their weights, computed from the rounds in its ledger."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmerit.core.criteria.validated import VALIDATED_ACCURACY, validated_of
from fedmerit.core.facts import SAMPLES
from fedmerit.core.reasons import Gate, Reason, Rule, called, explain, percent
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_from_json, part_text
from fedmerit.core.types import REMEMBERED, ClientId
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.errors import DataError, UserError
from fedmerit.store.ledger import Ledger, kept_recipe


def round_row(ledger: Ledger, number: int | None, client: ClientId | None = None) -> dict[str, Any]:
    """A round of the ledger; the default is the last one, or the last one in which the client took part."""
    rounds = ledger.rounds()
    if number is None and client is not None:
        number = ledger.last_round_of(client) or None
    found = [row for row in rounds if row["round"] == number] if number is not None else rounds[-1:]
    if not found:
        kept = f"rounds 1 to {rounds[-1]['round']}" if rounds else "no round yet"
        raise UserError(f"no round {number}; the run has {kept}" if number is not None else f"the run has {kept}")
    return found[0]


def reason_of(
    row: dict[str, Any], members: Sequence[ClientWeight], place: int, recipe: Recipe | None = None
) -> Reason | None:
    """The reason of one member of a group; None for a user-defined score, whose weights cannot be recomputed.

    The bounds of `scale` are in the recipe; without a recipe they are unknown, and so is the reason.
    """
    try:
        score = part_from_json(row["score"])
    except (DataError, TypeError):
        return None
    if row["normalise"] == "scale" and recipe is None:
        return None
    priority, mine = tuple(row["priority"]), members[place]
    raw = np.array([[member.criteria[name] for name in priority] for member in members])
    samples = [member.facts.get(SAMPLES, 0.0) for member in members]
    uniform = [float(recipe is not None and recipe.when_zero == "uniform")] * len(members)
    fallback = samples if recipe is None or recipe.when_zero == "samples" else uniform
    normalise = recipe.normalise if recipe is not None and row["normalise"] == "scale" else row["normalise"] or "sum"
    rule = Rule(priority, score, normalise, tuple(fallback))
    return explain(raw, place, rule, kept=mine.weight, samples=samples, gates=_gates(recipe, mine))


def _gates(recipe: Recipe | None, mine: ClientWeight) -> dict[str, Gate]:
    """The criteria that a gate set to 0 for this client."""
    gates = {}
    for criterion in validated_of(recipe) if recipe is not None else ():
        measured, accuracy = mine.facts.get(criterion.name), mine.facts.get(VALIDATED_ACCURACY)
        if not criterion.min_accuracy or measured is None or accuracy is None or criterion.name not in mine.criteria:
            continue
        if criterion.marginal:
            measured = max(measured - mine.facts.get(criterion.without, 0.0), 0.0)
        if accuracy < criterion.min_accuracy:
            gates[criterion.name] = Gate(measured, accuracy, criterion.min_accuracy)
    return gates


def share_of(row: dict[str, Any], mine: ClientWeight) -> str:
    """The whole that a weight is a share of: the round, or the client's group in it."""
    group = f"group {mine.group + 1} of {row['groups']} in " if row["groups"] > 1 else ""
    age = int(mine.facts.get(REMEMBERED, 0))
    remembered = f", with its update of round {row['round'] - age}" if age else ""
    return f"{group}round {row['round']}{remembered}"


def why(ledger: Ledger, number: int | None = None, client: ClientId | None = None) -> str:
    """Why a client got its weight in a round, and what would change it; without a client, a line for each.

    The default is the last round, or the last one in which the client took part.
    """
    row = round_row(ledger, number, client)
    if client is not None:
        return "\n".join([*client_lines(ledger, row, client), *round_note(ledger, row, number, client)])
    weights = sorted(ledger.weights(row["round"]), key=lambda one: -one.weight)
    lines = [client_lines(ledger, row, one.id)[0] for one in weights]
    return "\n".join(lines or [nothing_weighed(ledger, row["round"])])


def nothing_weighed(ledger: Ledger, number: int) -> str:
    """The message for a round in which no client has a weight."""
    reasons = [event.text for event in ledger.events(number) if event.kind == "left-out"]
    why = f"all {len(reasons)} clients were left out ({reasons[0]})" if reasons else "no client took part"
    return f"Round {number} changed nothing: {why}."


def round_note(ledger: Ledger, row: dict[str, Any], asked: int | None, client: ClientId) -> list[str]:
    """A line that names the explained round if it is not the last one and was not requested."""
    last = ledger.last_round()
    if asked is not None or row["round"] == last:
        return []
    return [f"{called(ledger.names()[client])} was not drawn in round {last}; its last round is {row['round']}."]


def client_lines(ledger: Ledger, row: dict[str, Any], client: ClientId) -> list[str]:
    """The reason of one client in sentences, also where it has no weight."""
    number, name = row["round"], ledger.names()[client]
    everybody = ledger.weights(number)
    mine = next((one for one in everybody if one.id == client), None)
    if mine is None:
        left_out = [e.text for e in ledger.events(number) if (e.client, e.kind) == (client, "left-out")]
        because = f"was left out: {left_out[0]}" if left_out else "was not drawn."
        return [f"{called(name)} has no weight in round {number}: it {because}"]
    members = [one for one in everybody if one.group == mine.group]
    reason = reason_of(row, members, members.index(mine), kept_recipe(ledger))
    of = share_of(row, mine)
    if reason is None:
        weight, by = percent(mine.weight), part_text(row["score"] or "an unknown rule")
        steps = f": {mine.terms}" if mine.terms else ""
        return [f"{called(name)} got {weight} of {of} for its score, {mine.score:.5g} by {by}{steps}."]
    return reason.lines(name, of)
