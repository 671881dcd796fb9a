"""Detail of one run: its clients' weights and why, its search, groups, rewards, audits, and what it notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedmerit.core.validation import SERVER
from fedmerit.core.weights import ClientWeight
from fedmerit.report.columns import WEIGHT_DIGITS, pack, pack_rounds, shorten
from fedmerit.report.events import group_events
from fedmerit.report.lineages import lineages
from fedmerit.store.ledger import Ledger, Rewarded
from fedmerit.study.fairness import Account, fairness_of

LEVEL = 0.9
"""The accuracy that a client converges to, as in `fedmerit fairness`."""
MOST_AUDITS = 200_000
"""Audits of single clients are left away, and the page says so, where there are more: they would be most of it."""


def run_detail(ledger: Ledger, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the page shows of a run when it is chosen."""
    earned, names = [ledger.earned(row["round"]) for row in rounds], ledger.names()
    return {
        "names": names,
        "rounds": pack_rounds(rounds, earned),
        "events": group_events(ledger.events()),
        "search": _search(ledger, rounds),
        "lineages": lineages([{row.id: row.group for row in rows} for rows in earned]) if has_groups(rounds) else None,
        "rewards": _rewards(ledger.rewards()),
        "accounts": _accounts(ledger, rounds, earned),
        "audits": _audits(ledger, len(names)),
    }


def has_groups(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether clients were told apart at all, if only into one group."""
    return any(row["groups"] > 1 or row["cut"] is not None for row in rounds)


def _search(ledger: Ledger, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What each round's search tried, in the order of visiting, and what it asked of the clients."""
    tried = [
        [
            [one.weighting, one.same, shorten(one.quality, 5), one.exchange, one.chosen]
            for one in ledger.tried(row["round"])
        ]
        for row in rounds
    ]
    if not any(tried):
        return None
    return {"tried": tried, "asked": [[row["exchanges"], row["evaluations"], row["tests"]] for row in rounds]}


def _rewards(rewards: Sequence[Rewarded]) -> dict[str, Any] | None:
    """Column by column: a list per round; `taken` is 1 or 0."""
    if not rewards:
        return None
    by_round: dict[int, list[Rewarded]] = {}
    for reward in rewards:
        by_round.setdefault(reward.round, []).append(reward)
    given = by_round.values()
    return {
        "round": [*by_round],
        "ids": [[one.client for one in found] for found in given],
        "entries": [pack([one.entries for one in found], 9) for found in given],
        "taken": [pack([int(one.accepted) for one in found], 1) for found in given],
        "before": [pack([one.before for one in found], WEIGHT_DIGITS) for found in given],
        "after": [pack([one.after for one in found], WEIGHT_DIGITS) for found in given],
        "bytes": sum(one.bytes for one in rewards),
        "refused": sum(bool(one.reason) for one in rewards),
    }


def _accounts(
    ledger: Ledger, rounds: Sequence[Mapping[str, Any]], earned: Sequence[Sequence[ClientWeight]]
) -> dict[str, Any] | None:
    """What each client put in and what came of it; None where no round was evaluated or nobody said its rows."""
    tested = any(row["accuracy"] is not None for row in rounds)
    if not tested or not all("samples" in row.facts for rows in earned for row in rows):
        return None
    found = fairness_of(ledger, LEVEL)
    told = {"accuracy": found.accuracy, "speed": found.speed, "entries": found.entries}
    return {
        "level": LEVEL,
        "columns": _account_columns(found.accounts),
        "correlations": {name: shorten(value, 3) for name, value in told.items()},
        "classes": [[edge, shorten(value, WEIGHT_DIGITS)] for edge, value in found.classes.items()],
        "gap": shorten(found.gap, WEIGHT_DIGITS),
    }


def _account_columns(accounts: Sequence[Account]) -> dict[str, Any]:
    """A list per column, clients in their order; None where a client never was at the level, or was not tested."""
    return {
        "rounds": [one.rounds for one in accounts],
        "contribution": [shorten(one.contribution, 9) for one in accounts],
        "given": [one.rewards for one in accounts],
        "taken": [one.accepted for one in accounts],
        "entries": [one.entries for one in accounts],
        "reached": [one.convergence.reached for one in accounts],
        "stays": [one.convergence.stays for one in accounts],
        "accuracy": [None if math.isnan(one.accuracy) else shorten(one.accuracy, WEIGHT_DIGITS) for one in accounts],
    }


def _audits(ledger: Ledger, clients: int) -> list[list[Any]] | None:
    """Each objective with the rounds in which clients were audited, and in each a value per client, None where unknown.

    None where there are too many for a page.
    """
    found: dict[str, dict[int, list[float | None]]] = {}
    rows = [row for row in ledger.audits() if row[1] != SERVER]
    if len(rows) > MOST_AUDITS:
        return None
    for number, client, objective, value in rows:
        found.setdefault(objective, {}).setdefault(number, [None] * clients)[client] = value
    return [
        [objective, [*by_round], [pack(values, WEIGHT_DIGITS) for values in by_round.values()]]
        for objective, by_round in found.items()
    ]
