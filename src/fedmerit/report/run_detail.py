"""Detail of one run: its clients' weights and why, its search, groups, rewards, audits and events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from fedmerit.core.criteria.validated import validated_of
from fedmerit.core.facts import SAMPLES
from fedmerit.core.objectives import direction, is_share
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import judged_by
from fedmerit.core.state import SERVER
from fedmerit.core.types import ClientId
from fedmerit.report.packing import WEIGHT_DIGITS, pack, pack_rounds, shorten
from fedmerit.store.ledger import Event, Ledger, Rewarded, WeightColumns, kept_recipe
from fedmerit.study.fairness import fairness_of
from fedmerit.study.suspects import suspects_dict

LEVEL = 0.9
"""The accuracy at which a client counts as converged, as in `fedmerit explain --fairness`."""
MOST_AUDITS = 200_000
"""Maximum number of audits of single clients; a page with more leaves them out and says so."""


def run_detail(ledger: Ledger) -> dict[str, Any]:
    """Everything that the page shows of a run when a reader selects it."""
    rounds, names = ledger.rounds(), ledger.names()
    weights = [ledger.weight_columns(row["round"]) for row in rounds]
    groups = [dict(zip(columns.ids, columns.groups.tolist(), strict=True)) for columns in weights]
    return {
        "names": names,
        **_rules(kept_recipe(ledger)),
        "rounds": pack_rounds(rounds, weights),
        "events": group_events(ledger.events()),
        "search": _search(ledger, rounds),
        "rewards": _rewards(ledger.rewards()),
        "audits": _audits(ledger, len(names)),
        "lineages": lineages(groups) if has_groups(rounds) else None,
        "accounts": _accounts(ledger, rounds, weights),
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


def lineages(rounds: Sequence[Mapping[ClientId, int]]) -> list[list[int]]:
    """Which groups of a round continue which earlier ones, so that a picture of them can keep its colours.

    Each round is given as the group of each client. The result has for each round one lineage per group, in the order
    of the groups' numbers. A group continues the lineage that most of its clients were in when they last took part;
    the pair with the most such clients is matched first. A group that continues none gets the first free number.
    """
    last: dict[ClientId, int] = {}
    by_round = []
    for groups in rounds:
        matched = _match(groups, last)
        last |= {client: matched[group] for client, group in groups.items()}
        by_round.append([matched[group] for group in sorted(matched)])
    return by_round


def _match(groups: Mapping[ClientId, int], last: Mapping[ClientId, int]) -> dict[int, int]:
    """The lineage of each group of a round, given each client's last one."""
    votes = Counter((group, last[client]) for client, group in groups.items() if client in last)
    matched: dict[int, int] = {}
    for (group, lineage), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if group not in matched and lineage not in matched.values():
            matched[group] = lineage
    for group in sorted(set(groups.values()) - matched.keys()):
        matched[group] = next(number for number in count() if number not in matched.values())
    return matched


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
        "bytes": [sum(reward.bytes for reward in of_round) for of_round in rounds],
        "refused": [sum(bool(reward.reason) for reward in of_round) for of_round in rounds],
    }


def _accounts(
    ledger: Ledger, rounds: Sequence[Mapping[str, Any]], weights: Sequence[WeightColumns]
) -> dict[str, Any] | None:
    """What each client put in and what it got; None where no round was evaluated or a client's size is unknown."""
    tested = any(row["accuracy"] is not None for row in rounds)
    if not tested or not all(_knows_samples(rows) for rows in weights):
        return None
    fairness = fairness_of(ledger, LEVEL)
    accounts = fairness.accounts
    correlations = {"accuracy": fairness.accuracy, "speed": fairness.speed, "entries": fairness.entries}
    return {
        "level": LEVEL,
        "columns": {  # in client order; None where a client never reached the level, or was not tested
            "rounds": [account.rounds for account in accounts],
            "contribution": [shorten(account.contribution, 9) for account in accounts],
            "given": [account.rewards for account in accounts],
            "taken": [account.accepted for account in accounts],
            "entries": [account.entries for account in accounts],
            "reached": [account.convergence.reached for account in accounts],
            "stays": [account.convergence.stays for account in accounts],
            "accuracy": [shorten(account.accuracy, WEIGHT_DIGITS) for account in accounts],
        },
        "correlations": {name: shorten(value, 3) for name, value in correlations.items()},
        "classes": [[edge, shorten(value, WEIGHT_DIGITS)] for edge, value in fairness.classes.items()],
        "gap": shorten(fairness.gap, WEIGHT_DIGITS),
    }


def _knows_samples(rows: WeightColumns) -> bool:
    return not rows.ids or (SAMPLES in rows.facts and not np.isnan(rows.facts[SAMPLES]).any())


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
