"""Explain: why each client of a round got the weight it got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from fedmerit.errors import UserError, did_you_mean
from fedmerit.ledger import Ledger
from fedmerit.report.screen import list_table, weights_table
from fedmerit.scores import Prioritized
from fedmerit.types import ClientId
from fedmerit.weights import Earned


def find_client(ledger: Ledger, text: str) -> ClientId:
    """A client by its name, or by its number."""
    names = ledger.names()
    if text in names:
        return names.index(text)
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    near = did_you_mean(text, names)
    raise UserError(f"no client {text!r}{near}; the run has {len(names)}, from {names[0]!r} to {names[-1]!r}")


def as_dict(ledger: Ledger, number: int, client: ClientId | None = None) -> dict[str, Any]:
    """The round's priority and how its clients, or one of them, came to their weights."""
    names, wanted = ledger.names(), _round(ledger, number)
    rows = [row for row in ledger.earned(number) if client in (None, row.id)]
    events = [event for event in ledger.events(number) if client is None or event.client in (None, client)]
    return {
        "round": number,
        "priority": wanted["priority"],
        "search": {
            "exchanges": wanted["exchanges"],
            "evaluations": wanted["evaluations"],
            "tests": wanted["tests"],
            "tried": [asdict(one) for one in ledger.tried(number)],
        },
        "clients": [
            {
                "id": row.id,
                "name": names[row.id],
                "facts": row.facts,
                "criteria": row.criteria,
                "normalised": row.normalised,
                "score": row.score,
                "weight": row.weight,
            }
            for row in rows
        ],
        "left_out": [{"id": e.client, "reason": e.text} for e in events if e.kind == "left-out"],
        "notes": [event.text for event in events if event.client is None],
    }


def explain_round(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    """All clients of a round, heaviest first, then who was left out and what to know."""
    row = _round(ledger, number)
    rows = sorted(ledger.earned(number), key=lambda row: -row.weight)
    if rows:
        yield weights_table(f"round {number}: {row['way']}", row["priority"], rows, ledger.names())
    yield from _search(ledger, row)
    yield from _events(ledger, number)


def explain_client(ledger: Ledger, number: int, client: ClientId) -> Iterator[RenderableType]:
    """One client: each criterion with its rank in the round, the score's terms, the weight against an equal share."""
    row, name = _round(ledger, number), escape(ledger.names()[client])
    priority = row["priority"]
    rows = ledger.earned(number)
    mine = next((row for row in rows if row.id == client), None)
    if mine is None:
        left_out = [event.text for event in ledger.events(number) if event.client == client]
        why = f"was left out: {escape(left_out[0])}" if left_out else "was not drawn"
        yield f"{name} has no weight in round {number}: it {why}"
        return
    place = 1 + sum(row.weight > mine.weight for row in rows)
    yield (
        f"[bold]{name}[/] got [bold]{mine.weight:.2%}[/] of round {number}: place {place} of {len(rows)}; "
        f"an equal share would be {1 / len(rows):.2%}"
    )
    facts = ", ".join(f"{fact} {value:g}" for fact, value in mine.facts.items())
    yield f"it reported: {escape(facts)}"
    lines = [_criterion_line(criterion, mine, rows) for criterion in priority]
    yield list_table("priority, most important first", ("criterion", "value", "normalised", "rank"), lines)
    yield _score_line(row["score"], priority, mine, sum(row.score for row in rows))


def _criterion_line(criterion: str, mine: Earned, rows: list[Earned]) -> tuple[str, str, str, str]:
    rank = 1 + sum(row.criteria[criterion] > mine.criteria[criterion] for row in rows)
    value, normalised = mine.criteria[criterion], mine.normalised[criterion]
    return criterion, f"{value:.5g}", f"{normalised:.4f}", f"{rank} of {len(rows)}"


def _score_line(score: str, priority: list[str], mine: Earned, total: float) -> str:
    values = [mine.normalised[criterion] for criterion in priority]
    terms = [" * ".join(f"{value:.4f}" for value in values[: i + 1]) for i in range(len(values))]
    made = f"{' + '.join(terms)} = " if score == repr(Prioritized()) and len(values) > 1 else ""
    share = f"weight = {mine.score:.5g} / {total:.5g} = {mine.weight:.2%}" if total else "every score was 0"
    return f"score = {made}{mine.score:.5g};  {share}"


def _search(ledger: Ledger, row: dict[str, Any]) -> Iterator[RenderableType]:
    """What the round's search tried, in the order of visiting."""
    tried = ledger.tried(row["round"])
    if not tried:
        return
    lines = [
        (
            one.way + (" *" if one.chosen else ""),
            "not asked" if one.quality is None else f"{one.quality:.4f}",
            "" if one.exchange is None else str(one.exchange),
            "; ".join(one.same),
        )
        for one in tried
    ]
    title = f"search: exchanges {row['exchanges']}, models tested {row['evaluations']} (* taken)"
    yield list_table(title, ("order", "accuracy", "exchange", "weighs the same"), lines)


def _events(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    names = ledger.names()
    for event in ledger.events(number):
        who = "" if event.client is None else f"{names[event.client]} left out: "
        yield f"[yellow]{escape(who + event.text)}[/]"


def _round(ledger: Ledger, number: int) -> dict[str, Any]:
    rounds = ledger.rounds()
    found = [row for row in rounds if row["round"] == number]
    if not found:
        kept = f"rounds 1 to {rounds[-1]['round']}" if rounds else "no round yet"
        raise UserError(f"no round {number}; the run has {kept}")
    return found[0]
