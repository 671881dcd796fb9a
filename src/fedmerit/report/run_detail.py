"""Detail of one run: its clients' weights and why, its search, groups, rewards, audits and events."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedmerit.core.criteria.validated import validated_of
from fedmerit.core.objectives import direction, is_share
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import judged_by
from fedmerit.core.state import SERVER
from fedmerit.report.packing import WEIGHT_DIGITS, pack, pack_rounds, shorten
from fedmerit.store.ledger import Event, Ledger, Rewarded, WeightColumns, kept_recipe
from fedmerit.study.suspects import suspects_dict

MOST_AUDITS = 200_000
"""Maximum number of audits of single clients; a page with more leaves them out and says so."""


def run_detail(ledger: Ledger) -> dict[str, Any]:
    """Everything that the page shows of a run when a reader selects it."""
    rounds, names = ledger.rounds(), ledger.names()
    weights = [ledger.weight_columns(row["round"]) for row in rounds]
    return {
        "names": names,
        **_rules(kept_recipe(ledger)),
        "rounds": pack_rounds(rounds, weights),
        "events": group_events(ledger.events()),
        "search": _search(ledger, rounds),
        "rewards": _rewards(ledger.rewards()),
        "audits": _audits(ledger, len(names)),
        "grouped": has_groups(rounds),
        "suspects": _suspects(ledger, dict(zip((row["round"] for row in rounds), weights, strict=True))),
    }


def _rules(recipe: Recipe | None) -> dict[str, Any]:
    """Settings of the recipe that reasons need: the weights if every score is 0, and the gates."""
    gates = [[one.name, one.min_accuracy] for one in (validated_of(recipe) if recipe else ()) if one.min_accuracy]
    return {"when_zero": recipe.when_zero if recipe else "samples", "gates": gates}


def _suspects(ledger: Ledger, weights: Mapping[int, WeightColumns]) -> dict[str, Any]:
    """Suspects with a summary of the evidence; `fedmerit explain --suspects` shows all of it."""
    found = suspects_dict(ledger, weights)
    short = [
        {key: one[key] for key in ("client", "since", "answered", "summary")}
        | {"odd": len({seen["round"] for seen in one["evidence"]})}
        for one in found["suspects"]
    ]
    return found | {"suspects": short}


def has_groups(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether clients were grouped at all, even if into one group."""
    return any(row["groups"] > 1 or row["cut"] is not None for row in rounds)


def group_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What was left out or noted, by kind in the order of the first occurrence; texts as in the ledger."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    return [{"kind": kind, **_span(of_kind), "texts": _texts(of_kind)} for kind, of_kind in kinds.items()]


def _texts(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Each text, the most frequent first, with every [round, client] it is about; client None means all clients."""
    texts: dict[str, list[list[int | None]]] = {}
    for event in events:
        texts.setdefault(event.text, []).append([event.round, event.client])
    by_count = sorted(texts.items(), key=lambda item: -len(item[1]))
    return [{"text": text, "at": places} for text, places in by_count]


def _span(events: Sequence[Event]) -> dict[str, Any]:
    rounds = [event.round for event in events]
    clients = {event.client for event in events} - {None}
    return {"count": len(events), "first": min(rounds), "last": max(rounds), "clients": len(clients)}


def _search(ledger: Ledger, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What each round's search tried, in the order of visiting, and what it asked of the clients."""
    tried = [
        [
            [option.weighting, option.same, shorten(option.quality, 5), option.exchange, option.chosen]
            for option in ledger.candidates(row["round"])
        ]
        for row in rounds
    ]
    if not any(tried):
        return None
    meta = ledger.meta()
    by = (json.loads(meta.get("config", "{}")).get("run") or {}).get("measure") or judged_by(meta.get("recipe"))
    asked = [[row["exchanges"], row["evaluations"], row["tests"]] for row in rounds]
    return {
        "tried": tried,
        "asked": asked,
        "by": by,
        "lower": by == "loss" or direction(by) < 0,
        "format": "%" if is_share(by) else "",
    }


def _rewards(rewards: Sequence[Rewarded]) -> dict[str, Any] | None:
    """Column by column, a list per round; `taken` is 1 or 0."""
    if not rewards:
        return None
    by_round: dict[int, list[Rewarded]] = {}
    for reward in rewards:
        by_round.setdefault(reward.round, []).append(reward)
    rounds = by_round.values()
    return {
        "round": [*by_round],
        "ids": [[reward.client for reward in of_round] for of_round in rounds],
        "entries": [pack([reward.entries for reward in of_round], 9) for of_round in rounds],
        "taken": [pack([int(reward.accepted) for reward in of_round], 1) for of_round in rounds],
        "before": [pack([reward.before for reward in of_round], WEIGHT_DIGITS) for of_round in rounds],
        "after": [pack([reward.after for reward in of_round], WEIGHT_DIGITS) for of_round in rounds],
    }


def _audits(ledger: Ledger, clients: int) -> list[list[Any]] | None:
    """Each objective, the rounds in which clients were audited, and for each a value per client (None: unknown).

    None where there are too many for a page.
    """
    audits: dict[str, dict[int, list[float | None]]] = {}
    rows = [row for row in ledger.audits() if row[1] != SERVER]
    if len(rows) > MOST_AUDITS:
        return None
    for index, client, objective, value in rows:
        audits.setdefault(objective, {}).setdefault(index, [None] * clients)[client] = value
    return [
        [objective, [*by_round], [pack(values, WEIGHT_DIGITS) for values in by_round.values()]]
        for objective, by_round in audits.items()
    ]
