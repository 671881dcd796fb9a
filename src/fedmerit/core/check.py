"""Check replies and criterion values: nothing that a client sends is trusted."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.facts import EXCLUDED, SAMPLES, Fact, find_fact
from fedmerit.core.host import Limits
from fedmerit.core.reasons import called
from fedmerit.core.showing import printable
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Note, Replies, Vector

MANY = 0.25
"""Share of excluded clients in a round above which a note says so.

Honest clients of digits (Dirichlet 0.1, 0.3 and 1.0, seeds 11 to 13) were never excluded by `robust`, and more often
than this by `robust_server` in 57 of 225 rounds, clients whose rows resemble the server's least: worth a look.
"""


def check(
    replies: Replies, required_facts: Sequence[str], view: View, failed: Mapping[ClientId, str] = EMPTY
) -> tuple[Cohort, dict[ClientId, str]]:
    """Return the clients that can be scored, and the reason for each client that is dropped.

    An update must be finite and as long as the model, its extra vectors finite, and each fact within its range.
    `failed` holds clients that dropped out before they trained.
    """
    # Clients that keep their updates have sent none: what they upload is checked when it arrives.
    host, length = view.host, len(view.model) if replies.upload is None else replies.updates.length
    dropped = {client: printable(reason) for client, reason in {**replies.failed, **failed}.items()}
    wanted = [fact for fact in map(find_fact, required_facts) if fact.source == "client"]
    for client, facts, norm in zip(replies.ids, replies.facts, replies.updates.norms, strict=True):
        reason = _wrong_update(norm, replies.updates.length, length) or _wrong_facts(facts, wanted, host.limits)
        if reason:
            dropped[client] = reason
    for name, rows in replies.vectors.items():
        for client, norm in zip(replies.ids, rows.norms, strict=True):
            if not math.isfinite(norm):
                dropped.setdefault(client, f"{name} contains NaN, infinity or values too large to square")
    places = np.array([place for place, client in enumerate(replies.ids) if client not in dropped], dtype=np.intp)
    valid_facts = [replies.facts[place] for place in places]
    columns = {fact.name: np.array([facts[fact.name] for facts in valid_facts], dtype=np.float64) for fact in wanted}
    ids = tuple(replies.ids[place] for place in places)
    measured = replies.server_facts.items()
    columns |= {name: np.array([values[client] for client in ids], np.float64) for name, values in measured}
    vectors = {name: rows.keep(places) for name, rows in replies.vectors.items()}
    return Cohort(view.index, ids, replies.updates.keep(places), columns, vectors, replies.upload), dropped


def check_criteria(
    criteria: Sequence[Criterion], cohort: Cohort, history: History
) -> tuple[Cohort, dict[ClientId, str]]:
    """Drop clients for which a criterion is NaN, infinite or negative; the round continues with the remaining clients.

    A criterion that fails for all of several clients is broken itself; the error then comes from the weighting.
    """
    dropped: dict[ClientId, str] = {}
    for criterion in criteria if cohort.ids else ():
        values = _values(criterion, cohort, history)
        wrong = ~(np.isfinite(values) & (values >= 0))
        if values.shape != (len(cohort.ids),) or (wrong.all() and len(wrong) != 1):
            continue
        for place in np.flatnonzero(wrong):
            text = f"criterion {criterion.name} must be a number >= 0 (got {values[place]:g})"
            dropped.setdefault(cohort.ids[place], printable(text))
    if not dropped:
        return cohort, dropped
    places = [place for place, client in enumerate(cohort.ids) if client not in dropped]
    return cohort.keep(np.array(places, dtype=np.intp)), dropped


def _values(criterion: Criterion, cohort: Cohort, history: History) -> Vector:
    """Values of a criterion; after an ArithmeticError it is evaluated for each client separately."""
    with np.errstate(all="ignore"):
        try:
            return np.asarray(criterion(cohort, history), dtype=np.float64)
        except ArithmeticError:
            if len(cohort.ids) == 1:
                return np.full(1, np.nan)
            places = np.arange(len(cohort.ids))
            return np.concatenate([_values(criterion, cohort.keep(places[[at]]), history) for at in places])


def many_excluded(cohort: Cohort) -> tuple[Note, ...]:
    """Return the note on a round that excludes more than `MANY` of its clients, or nothing."""
    excluded = cohort.facts.get(EXCLUDED, np.zeros(1))
    if excluded.mean() <= MANY:
        return ()
    text = (
        f"{int(excluded.sum())} of {len(excluded)} clients are excluded. If fewer of yours can be attackers, honest "
        "clients are among them; compare with last_answers, which excludes none"
    )
    return (Note("excluded", "clients", text),)


def nobody_trained(cohort: Cohort, dropped: Mapping[ClientId, str], names: Sequence[str] = ()) -> tuple[Note, ...]:
    """Return the note on a round in which every client was dropped, or nothing.

    >>> from fedmerit.core.updates import Updates
    >>> nobody = Cohort(1, (), Updates(np.empty((0, 2), np.float32)), {})
    >>> nobody_trained(nobody, {4: "no training samples"})[0].text
    'nothing was learned: all 1 clients of the round were dropped (client 4: no training samples)'
    """
    if cohort.ids or not dropped:
        return ()
    text = f"nothing was learned: all {len(dropped)} clients of the round were dropped ({first_reason(dropped, names)})"
    return (Note("nobody", "all", text),)


def first_reason(dropped: Mapping[ClientId, str], names: Sequence[str] = ()) -> str:
    """Return the dropped client with the lowest id, by its name if it is known, and the reason."""
    client = min(dropped)
    return f"{called(names[client] if client < len(names) else str(client))}: {dropped[client]}"


def _wrong_update(norm: float, received: int, length: int) -> str | None:
    if received != length:
        return f"update has {received} values, but the model has {length}"
    # A finite norm needs finite values, so one pass over the rows checks both; Updates caches the norms.
    return None if math.isfinite(norm) else "update contains NaN, infinity or values too large to square"


def _wrong_facts(facts: Any, wanted: Sequence[Fact], limits: Limits) -> str | None:
    if not isinstance(facts, Mapping):
        return f"facts must be a mapping of names to numbers (got {facts!r:.80})"
    for fact in wanted:
        reason = fact.wrong(facts.get(fact.name), limits.get(fact.name))
        if reason:
            return reason
    return "no training samples" if facts[SAMPLES] < 1 else None
