"""Explain: why each client of a round got the weight it got."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from fedmerit.core.criteria.table import display_name, display_priority
from fedmerit.core.objectives import worst_value
from fedmerit.core.reasons import Reason
from fedmerit.core.recipe_json import judged_by
from fedmerit.core.search.search import CandidateResult
from fedmerit.core.state import SERVER
from fedmerit.core.types import ClientId
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.report.screen import list_table, weights_table
from fedmerit.store.ledger import Ledger, Rewarded, kept_recipe
from fedmerit.store.reasons import client_lines, reason_of, round_note, round_row, share_of
from fedmerit.study.metrics import audits_by_objective, known_of_clients
from fedmerit.study.text_table import number_text

OF_CLAIMS = ("claim-cut", "claim-changed")
"""The kinds of events about a client's claims."""


def as_dict(ledger: Ledger, number: int | None, client: ClientId | None = None) -> dict[str, Any]:
    """A round's priority, and facts, criteria, score, weight and reason of its clients, or of one of them.

    The default is the last round, or the last one in which the client took part.
    """
    names, wanted, recipe = ledger.names(), round_row(ledger, number, client), kept_recipe(ledger)
    number = int(wanted["round"])
    everybody = ledger.weights(number)
    rows = [row for row in everybody if client in (None, row.id)]
    groups = {group: [one for one in everybody if one.group == group] for group in {row.group for row in rows}}
    places = {one.id: place for members in groups.values() for place, one in enumerate(members)}
    reasons = {row.id: reason_of(wanted, groups[row.group], places[row.id], recipe) for row in rows}
    events = [event for event in ledger.events(number) if client is None or event.client in (None, client)]
    rewards = {reward.client: reward for reward in ledger.rewards(number)}
    return {
        "round": number,
        "priority": wanted["priority"],
        "epsilon": wanted["epsilon"],
        "clip": wanted["clip"],
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
                "terms": {"text": row.terms} if row.terms else _terms_dict(reasons[row.id], wanted["priority"]),
                "reason": _reason_dict(reasons[row.id], names[row.id], share_of(wanted, row)),
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


def explain_round(ledger: Ledger, number: int | None) -> Iterator[RenderableType]:
    """All clients of a round, the largest weight first, then left-out clients and notes; default: the last round."""
    row = round_row(ledger, number)
    number = int(row["round"])
    rows = sorted(ledger.weights(number), key=lambda row: -row.weight)
    for group in range(row["groups"]):
        title = f"round {number}: {_in_words(row['weighting'])}" + (
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


def explain_client(ledger: Ledger, number: int | None, client: ClientId) -> Iterator[RenderableType]:
    """One client: the reason in words, its facts, each criterion with its rank in the round, audits and rewards.

    The default is the last round in which the client took part.
    """
    row = round_row(ledger, number, client)
    yield from (f"[yellow]{escape(note)}[/]" for note in round_note(ledger, row, number, client))
    number, priority = row["round"], row["priority"]
    first, *others = client_lines(ledger, row, client)
    yield f"[bold]{escape(first)}[/]"
    everybody = ledger.weights(number)
    mine = next((one for one in everybody if one.id == client), None)
    if mine is None:
        return
    yield from map(escape, others)
    facts = ", ".join(f"{fact} {value:g}" for fact, value in mine.facts.items())
    yield f"facts: {escape(facts)}"
    about = [e for e in ledger.events(number) if e.client == client and e.kind in OF_CLAIMS]
    yield from (f"[yellow]it {escape(event.text)}[/]" for event in about)
    members = [one for one in everybody if one.group == mine.group]
    lines = [_criterion_line(criterion, mine, members) for criterion in priority]
    yield list_table("priority, most important first", ("criterion", "value", "normalised", "rank"), lines)
    audits = [(objective, value) for _, who, objective, value in ledger.audits(number) if who == client]
    audited = ", ".join(f"{objective} {'unknown' if value is None else f'{value:.4f}'}" for objective, value in audits)
    yield from [f"audit on its test rows: {escape(audited)}"] if audited else []
    yield from (f"reward: {_reward_text(reward)}" for reward in ledger.rewards(number) if reward.client == client)


def _audits(ledger: Ledger, number: int) -> Iterator[RenderableType]:
    """The objectives of the model after the round: at the server, and the clients' median and worst."""
    audits = audits_by_objective(ledger, number)
    if not audits:
        return
    lines = []
    for objective, by_round in audits.items():
        known, at_server = sorted(known_of_clients(by_round[number]).values()), by_round[number].get(SERVER)
        local = (f"{known[len(known) // 2]:.4f}", f"{worst_value(objective, known):.4f}") if known else ("-", "-")
        lines.append((objective, number_text(at_server, 4), *local, f"{len(known)}"))
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
    return (
        display_name(criterion),
        f"{value:.5g}",
        f"{normalised:.4f}",
        f"{rank} of {len(rows)}",
    )


def _terms_dict(reason: Reason | None, priority: Sequence[str]) -> dict[str, Any] | None:
    if reason is None or reason.terms is None:
        return None
    terms = reason.terms
    return {
        "join": terms.join,
        "terms": [
            {"criteria": [priority[column] for column in term.columns], "text": term.text, "value": term.value}
            for term in terms.terms
        ],
        "rank": None if terms.rank is None else dict(zip(("place", "of", "how"), terms.rank, strict=True)),
        "score": terms.score,
    }


def _reason_dict(reason: Reason | None, name: str, of: str) -> dict[str, Any] | None:
    if reason is None:
        return None
    alike = {part.name: part.alike for part in reason.parts}
    return {
        "text": "\n".join(reason.lines(name, of)),
        "weight": reason.weight,
        "equal": reason.equal,
        "place": reason.place,
        "clients": reason.clients,
        "decided": reason.decided,
        "if_all_had_its_value": alike,
        "gates": {part.name: asdict(part.gate) for part in reason.parts if part.gate is not None},
        "changes": [asdict(change) for change in reason.changes],
    }


def _in_words(label: str | None) -> str:
    """The label of a weighting, `LD > DS, lr 1, momentum 0`, with the full names of its criteria."""
    order, comma, step = (label or "no weights").partition(", ")
    return display_priority(order.split(" > ")) + comma + step


def _search(ledger: Ledger, row: dict[str, Any]) -> Iterator[RenderableType]:
    """What the round's search tried, in the order of visiting."""
    tried = ledger.candidates(row["round"])
    if not tried:
        return
    lines = [
        (
            _in_words(one.weighting) + (" *" if one.chosen else ""),
            "not asked" if one.quality is None else f"{one.quality:.4f}",
            "" if one.exchange is None else str(one.exchange),
            "; ".join(map(_in_words, one.same)),
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
