"""Claims: bounds on the facts that clients claim, from the remaining clients' facts and the client's past.

A fact within its range may still be a lie. `Claims` bounds each claim by the round's median and by the client's past,
and pins facts of its rows to their first value. It also records each client's usual claim, to which `Cap` compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.facts import CLAIMED, LARGEST, SECONDS, USUAL, Fact, find_fact
from fedmerit.core.parts import FACTS_ONLY, Doc, Words, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, ClientId, Cohort, Evaluation, Note, Vector

LESS_EARNS_MORE = (SECONDS,)
"""Facts that a liar understates: bounded from below too."""
CHANGE = 1.2
"""The factor by which a fact of a client's rows may differ from the first."""
CLIENT_FACTS = "*client facts"
"""Remembered by `Claims`: all facts that the recipe requests from clients."""


@part("stage", "claims")
class Claims:
    """Bound what clients claim, beyond the facts' ranges; a recipe without this stage believes facts as reported.

    A claim counts as at most k times the median of the round's claims, and as at most k times the median of the
    client's recent values, but this second bound never falls below the round's median. Facts of a client's rows
    (samples, labels ...) are constant: a claim that differs from the first by more than a factor of 1.2 counts as
    the first. Row counts that judges report in a search are bounded in the same way.

    The usual claim of a known client is its first value of a fact of its rows, and the median of its last nine values
    of any other fact. If the limit `Cap` follows, no lie gains more than twice the share that the usual claims earn, or
    one equal share, whichever is larger; see `Cap`.

    k          a claim counts as at most this many medians

    >>> Claims(k=4).k
    4
    """

    k: Annotated[float, Interval(ge=1), Doc("a claim counts as at most this many medians")] = 3.0

    phase: ClassVar[Phase] = "claims"
    name: ClassVar[str] = "claims"
    remembers: ClassVar[tuple[str, ...]] = (CLIENT_FACTS,)
    gives: ClassVar[Words] = FACTS_ONLY
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "claims are bounded by the round's median, which depends on other clients; scales bound them, "
        "remove the stage"
    }

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """Bound the facts; `claimed:FACT` stores the reported value of a bounded claim, and a note reports it.

        `usual:FACT` stores the usual claims of the round's clients, if the claims differ from them.
        """
        facts, notes = dict[str, Vector](), list[Note]()
        for fact in (find_fact(name) for name in cohort.facts):
            if fact.source == "server":
                continue
            claimed = cohort.facts[fact.name]
            pinned, changed = _pinned(self, fact, claimed, cohort.ids, view.history)
            counted = _bounded(self, fact, pinned, cohort.ids, view.history)
            if (counted != claimed).any():
                facts[fact.name], facts[f"{CLAIMED}{fact.name}"] = counted, claimed
            # Bounded by their own median: claims of this round must not move what they are compared with.
            usual = _bounded(self, fact, _usual(fact, pinned, cohort.ids, view.history), cohort.ids, view.history)
            if (counted != usual).any():
                facts[f"{USUAL}{fact.name}"] = usual
            notes += changed + _cut(fact, pinned, counted, cohort.ids)
        return Measured(facts, tuple(notes))

    def bound_answers(self, answers: Evaluation) -> Evaluation:
        """Bound the row counts in judges' answers to k medians."""
        return bound_sizes(answers, self.k)


def _usual(fact: Fact, claimed: Vector, ids: tuple[ClientId, ...], history: History) -> Vector:
    """Usual values of the clients: the first for a fact of rows, otherwise the median of the recent; new: the claim."""
    if fact.measure is not None:
        known = history.first.get(fact.name, EMPTY)
    else:
        known = {client: float(np.median(values)) for client, values in history.recent.get(fact.name, EMPTY).items()}
    return np.array([known.get(client, claim) for client, claim in zip(ids, claimed.tolist(), strict=True)])


def _pinned(
    claims: Claims, fact: Fact, claimed: Vector, ids: tuple[ClientId, ...], history: History
) -> tuple[Vector, list[Note]]:
    """Facts of rows, replaced by the first value if the claim differs by more than `CHANGE`."""
    if fact.measure is None:
        return claimed, []
    first: Mapping[ClientId, float] = history.first.get(fact.name, EMPTY)
    counted, notes = claimed.copy(), []
    for place, client in enumerate(ids):
        before, now = first.get(client), float(claimed[place])
        if before is None or before / CHANGE <= now <= before * CHANGE:
            continue
        counted[place] = before
        text = f"claims {fact.name} {now:g} after {before:g}; {before:g} counts, because facts of its rows are constant"
        notes.append(Note("claim-changed", f"{client}: {fact.name}", text, client))
    return counted, notes


def _bounded(claims: Claims, fact: Fact, claimed: Vector, ids: tuple[ClientId, ...], history: History) -> Vector:
    """Claims within k medians of the round and of the client's past; a median of 0 bounds nothing."""
    claimed = np.minimum(claimed, LARGEST / (2 * claims.k))  # so that neither the median nor k medians overflow
    median = float(np.median(claimed))
    if median <= 0:
        return claimed
    recent = history.recent.get(fact.name, EMPTY)
    own = np.array([np.median(recent[client]) if client in recent else median for client in ids])
    high = np.minimum(claims.k * median, np.maximum(claims.k * own, median))
    counted = np.minimum(claimed, high)
    if fact.name in LESS_EARNS_MORE:
        counted = np.maximum(counted, np.maximum(median / claims.k, np.minimum(own / claims.k, median)))
    return np.asarray(counted)


def _cut(fact: Fact, claimed: Vector, counted: Vector, ids: tuple[ClientId, ...]) -> list[Note]:
    text = "claims {name} {said:g}, which counts as {counted:g}: the bound from the round's median and its past"
    return [
        Note(
            "claim-cut",
            f"{ids[place]}: {fact.name}",
            text.format(name=fact.name, said=claimed[place], counted=counted[place]),
            ids[place],
        )
        for place in np.flatnonzero(claimed != counted)
    ]


def bound_sizes(answers: Evaluation, k: float) -> Evaluation:
    """Bound judges' row counts to k medians of the counts above 0, and scale their results in proportion.

    >>> bound_sizes(Evaluation(np.array([5, 6, 900_000]), np.array([10, 10, 1_000_000])), k=3).sizes.tolist()
    [10, 10, 30]
    """
    answered = answers.sizes > 0
    if not answered.any():
        return answers
    most = max(int(k * float(np.median(answers.sizes[answered]))), 1)
    if (answers.sizes <= most).all():
        return answers
    sizes = np.minimum(answers.sizes, most)
    left = np.divide(sizes, answers.sizes, out=np.ones(len(sizes)), where=answered)
    correct = np.minimum(np.rint(answers.correct * left).astype(np.int64), sizes)
    return Evaluation(correct, sizes, None if answers.losses is None else answers.losses * left)
