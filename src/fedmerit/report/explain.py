"""Explain: why each client of a round got the weight it got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape

from fedmerit.core.aggregation import CandidateResult
from fedmerit.core.recipe_json import judged_by, part_from_json
from fedmerit.core.scores import Terms, explain_score
from fedmerit.core.types import ClientId
from fedmerit.core.validation import SERVER
from fedmerit.core.weights import ClientWeight
from fedmerit.errors import DataError, UserError, did_you_mean
from fedmerit.report.screen import list_table, weights_table
from fedmerit.store.ledger import Ledger, Rewarded

OF_CLAIMS = ("claim-cut", "claim-changed", "inconsistent")
"""The kinds of events that are about what a client claimed."""


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
    everybody = ledger.weights(number)
    rows = [row for row in everybody if client in (None, row.id)]
    groups = {group: [one for one in everybody if one.group == group] for group in {row.group for row in rows}}
    terms = {row.id: terms_of(wanted, groups[row.group], groups[row.group].index(row)) for row in rows}
    events = [event for event in ledger.events(number) if client is None or event.client in (None, client)]
    rewards = {reward.client: reward for reward in ledger.rewards(number)}
    return {
        "round": number,
        "priority": wanted["priority"],
        "epsilon": wanted["epsilon"],
        "search": {
            "exchanges": wanted["exchanges"],
            "evaluations": wanted["evaluations"],
            "tests": wanted["tests"],
            "by": judged_by(ledger.meta().get("recipe")),
            "tried": [_result_dict(result) for result in ledger.candidates(number)],
        },
        "clients": [
            {
                "id": row.id,
                "name": names[row.id],
                "facts": row.facts,
                "criteria": row.criteria,
                "normalised": row.normalised,
                "score": row.score,
                "terms": _terms_dict(terms[row.id], wanted["priority"]),
                "weight": row.weight,
                "uncapped": row.uncapped,
                "group": row.group,
                "reward": asdict(rewards[row.id]) if row.id in rewards else None,
            }
            for row in rows
        ],
        "groups": {"number": wanted["groups"], "cut": wanted["cut"]},
        "audits": [
            {"client": None if who == SERVER else who, "objective": objective, "value": value}
            for _, who, objective, value in ledger.audits(number)
            if client is None or who in (SERVER, client)
        ],
        "refused": [{"id": e.client, "reason": e.text} for e in events if e.kind == "refused"],
        "left_out": [{"id": e.client, "reason": e.text} for e in events if e.kind == "left-out"],
        "claims": [{"id": e.client, "kind": e.kind, "reason": e.text} for e in events if e.kind in OF_CLAIMS],
        "notes": [event.text for event in events if event.client is None],
    }


def _result_dict(result: CandidateResult) -> dict[str, Any]:
    values = asdict(result)
    return {"way": values.pop("weighting"), **values}


def explain_round(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    """All clients of a round, heaviest first, then who was left out and what to know."""
    row = _round(ledger, number)
    rows = sorted(ledger.weights(number), key=lambda row: -row.weight)
    for group in range(row["groups"]):
        title = f"round {number}: {row['weighting']}" + (
            f", group {group + 1} of {row['groups']}" * (row["groups"] > 1)
        )
        if members := [one for one in rows if one.group == group]:
            yield weights_table(title, row["priority"], members, ledger.names())
    if row["groups"] > 1:
        yield f"groups were merged up to a distance of {row['cut']:.3f}" if row["cut"] is not None else ""
    yield from _rewards(ledger, number)
    yield from _audits(ledger, number)
    yield from _search(ledger, row)
    yield from _events(ledger, number)


def explain_client(ledger: Ledger, number: int, client: ClientId) -> Iterator[RenderableType]:
    """One client: each criterion with its rank in the round, the score's terms, the weight against an equal share."""
    row, name = _round(ledger, number), escape(ledger.names()[client])
    priority = row["priority"]
    mine = next((row for row in ledger.weights(number) if row.id == client), None)
    if mine is None:
        left_out = [e.text for e in ledger.events(number) if (e.client, e.kind) == (client, "left-out")]
        why = f"was left out: {escape(left_out[0])}" if left_out else "was not drawn"
        yield f"{name} has no weight in round {number}: it {why}"
        return
    rows = [row for row in ledger.weights(number) if row.group == mine.group]
    place = 1 + sum(row.weight > mine.weight for row in rows)
    of = f"group {mine.group + 1} in round {number}" if row["groups"] > 1 else f"round {number}"
    yield (
        f"[bold]{name}[/] got [bold]{mine.weight:.2%}[/] of {of}: place {place} of {len(rows)}; "
        f"an equal share would be {1 / len(rows):.2%}"
    )
    facts = ", ".join(f"{fact} {value:g}" for fact, value in mine.facts.items())
    yield f"facts: {escape(facts)}"
    about = [e for e in ledger.events(number) if e.client == client and e.kind in OF_CLAIMS]
    yield from (f"[yellow]it {escape(event.text)}[/]" for event in about)
    lines = [_criterion_line(criterion, mine, rows) for criterion in priority]
    yield list_table("priority, most important first", ("criterion", "value", "normalised", "rank"), lines)
    terms = terms_of(row, rows, rows.index(mine))
    yield _score_line(terms, mine, sum(row.score for row in rows))
    audits = [(objective, value) for _, who, objective, value in ledger.audits(number) if who == client]
    audited = ", ".join(f"{objective} {'unknown' if value is None else f'{value:.4f}'}" for objective, value in audits)
    yield from [f"audit on its test rows: {escape(audited)}"] if audited else []
    yield from (f"reward: {_reward_text(reward)}" for reward in ledger.rewards(number) if reward.client == client)


def _audits(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    """The objectives of the model after the round: at the server, and the clients' median and worst."""
    audits: dict[str, dict[int, float | None]] = {}
    for _, client, objective, value in ledger.audits(number):
        audits.setdefault(objective, {})[client] = value
    if not audits:
        return
    lines = []
    for objective, values in audits.items():
        known = sorted(v for client, v in values.items() if client != SERVER and v is not None)
        local = (f"{known[len(known) // 2]:.4f}", f"{known[0]:.4f}") if known else ("-", "-")
        at_server = values.get(SERVER)
        lines.append((objective, "-" if at_server is None else f"{at_server:.4f}", *local, f"{len(known)}"))
    header = ("objective", "at the server", "clients' median", "worst", "clients that can tell")
    yield list_table("audit of the model after the round", header, lines)


def _rewards(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    names, rewards = ledger.names(), ledger.rewards(number)
    if rewards:
        lines = [(names[reward.client], _reward_text(reward)) for reward in rewards]
        yield list_table("rewards", ("client", "what it got back, and whether it took it"), lines)


def _reward_text(reward: Rewarded) -> str:
    got = f"{reward.entries:,} entries, {reward.bytes:,} bytes; "
    if reward.reason:
        return got + f"refused: {reward.reason}"
    if reward.before is None or reward.after is None:
        return got + "taken without a test"
    return got + f"accuracy {reward.before:.4f} -> {reward.after:.4f}: {'taken' if reward.accepted else 'not taken'}"


def _criterion_line(criterion: str, mine: ClientWeight, rows: list[ClientWeight]) -> tuple[str, str, str, str]:
    rank = 1 + sum(row.criteria[criterion] > mine.criteria[criterion] for row in rows)
    value, normalised = mine.criteria[criterion], mine.normalised[criterion]
    return criterion, f"{value:.5g}", f"{normalised:.4f}", f"{rank} of {len(rows)}"


def terms_of(row: Mapping[str, Any], members: Sequence[ClientWeight], place: int) -> Terms | None:
    """What the score of one of the group's members is made of; None where its score is not one of ours."""
    try:
        score = part_from_json(row["score"])
    except DataError:
        return None
    table = np.array([[member.normalised[name] for name in row["priority"]] for member in members])
    return explain_score(score, table, place)


def _terms_dict(terms: Terms | None, priority: Sequence[str]) -> dict[str, Any] | None:
    if terms is None:
        return None
    return {
        "join": terms.join,
        "terms": [
            {"criteria": [priority[column] for column in term.columns], "text": term.text, "value": term.value}
            for term in terms.terms
        ],
        "divisor": terms.divisor,
        "rank": None if terms.rank is None else dict(zip(("place", "of", "how"), terms.rank, strict=True)),
        "score": terms.score,
    }


def _score_line(terms: Terms | None, mine: ClientWeight, total: float) -> str:
    share = f"weight = {mine.score:.5g} / {total:.5g} = {mine.earned:.2%}" if total else "every score was 0"
    return f"score = {f'{mine.score:.5g}' if terms is None else terms};  {share}{cap_text(mine)}"


def cap_text(mine: ClientWeight) -> str:
    """What the cap made of a weight; empty where it is as it was earned."""
    if mine.weight == mine.earned:
        return ""
    if mine.weight < mine.earned:
        return f", cut by the cap to {mine.weight:.2%}"
    return f", {mine.weight:.2%} with its part of what the cap cut from others"


def _search(ledger: Ledger, row: dict[str, Any]) -> Iterator[RenderableType]:
    """What the round's search tried, in the order of visiting."""
    tried = ledger.candidates(row["round"])
    if not tried:
        return
    lines = [
        (
            one.weighting + (" *" if one.chosen else ""),
            "not asked" if one.quality is None else f"{one.quality:.4f}",
            "" if one.exchange is None else str(one.exchange),
            "; ".join(one.same),
        )
        for one in tried
    ]
    title = f"search: exchanges {row['exchanges']}, models tested {row['evaluations']} (* taken)"
    judged = judged_by(ledger.meta().get("recipe"))
    yield list_table(title, ("weighting", judged, "exchange", "does the same"), lines)


def _events(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    names = ledger.names()
    for event in ledger.events(number):
        what = {"refused": " refused its reward:", "left-out": " left out:"}.get(event.kind, "")
        who = "" if event.client is None else f"{names[event.client]}{what} "
        yield f"[yellow]{escape(who + event.text)}[/]"


def _round(ledger: Ledger, number: int) -> dict[str, Any]:
    rounds = ledger.rounds()
    matching = [row for row in rounds if row["round"] == number]
    if not matching:
        kept = f"rounds 1 to {rounds[-1]['round']}" if rounds else "no round yet"
        raise UserError(f"no round {number}; the run has {kept}")
    return matching[0]
