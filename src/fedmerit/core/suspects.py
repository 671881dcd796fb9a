"""Suspects: clients about whom something odd was seen again and again; what was seen, in words, never one number.

`look` says what is odd in one round. A client is suspected once something odd was seen of it in at least `LEAST_ROUNDS`
rounds and in at least `LEAST_SHARE` of those in which it answered, and not its claims alone: a claim is the same
number in every round, and large clients are honest most of the time. Nobody is left out for it: that is the
recipe's to decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedmerit.core.facts import CLAIMED, SAMPLES, VALIDATED
from fedmerit.core.state import Record
from fedmerit.core.types import ClientId, Vector

EvidenceKind: TypeAlias = Literal["zero", "short", "long", "against", "twin", "score", "refused", "claim", "noted"]
EVIDENCE: tuple[str, ...] = get_args(EvidenceKind)
SUPPORTING = ("claim", "noted")
"""Evidence that counts only beside other evidence: it repeats one number that a client states, or what a cap cut."""

OF_NOTES: Mapping[str, EvidenceKind] = {"claim-cut": "claim", "claim-changed": "claim"}
"""Kinds of notes on one client, as evidence; all others are `noted`."""

LEAST_ROUNDS, LEAST_SHARE = 3, 0.5
LEAST_COHORT = 4
"""Clients of a round, without whom nobody can stand out."""
ZERO, MIN_NORM_RATIO, MAX_NORM_RATIO = 1e-6, 0.1, 8.0
"""Norms of an update, as multiples of the median, below or above which it is an outlier.

The one set of thresholds: `NormInlier` reads them too. Clients with one label have very short updates.
"""
AGAINST, DEVIATIONS = -0.2, 2.5
"""A cosine with the others below the first, and so many median absolute deviations below the round's median, is odd."""
LOW_SCORE = 0.5
"""A score on the server's rows below this share of the round's median, and as many deviations below it, is odd."""
LARGE_CLAIM = 5.0
"""Claimed samples above so many times the round's median are odd."""


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """What the server saw in a round, of who was weighed in client order and of who was refused.

    `refused` has the reasons of clients whose answer failed the check, `notes` what else was noted of single clients:
    the client, the kind of note, its text.
    """

    index: int
    ids: tuple[ClientId, ...]
    norms: Vector
    cosines: Vector
    facts: Mapping[str, Vector]
    refused: Mapping[ClientId, str] = field(default_factory=dict)
    notes: tuple[tuple[ClientId, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something odd about a client in a round, in words."""

    round: int
    client: ClientId
    kind: EvidenceKind
    text: str


@dataclass(frozen=True, slots=True)
class Looked:
    """One round looked at: who answered, and what was odd."""

    index: int
    answered: frozenset[ClientId]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A client about whom something odd was seen again and again.

    since      the round in which that was enough to suspect it
    answered   the rounds in which it answered
    evidence   all that was seen of it, by round
    """

    client: ClientId
    since: int
    answered: int
    evidence: tuple[Evidence, ...]

    @property
    def kinds(self) -> dict[str, list[int]]:
        """The rounds of each kind of evidence, the most frequent kind first."""
        rounds: dict[str, list[int]] = {}
        for one in self.evidence:
            rounds.setdefault(one.kind, []).append(one.round)
        return dict(sorted(rounds.items(), key=lambda item: -len(item[1])))

    @property
    def summary(self) -> str:
        """What was seen, in one sentence per kind, with an example each.

        >>> seen = [Evidence(index, 7, "zero", "its update was zero: it brought nothing") for index in (1, 2, 4)]
        >>> Suspect(7, since=4, answered=5, evidence=tuple(seen)).summary
        'in 3 of its 5 rounds: its update was zero: it brought nothing (round 1)'
        """
        first = {str(one.kind): one for one in reversed(self.evidence)}
        return "; ".join(
            f"in {len(rounds)} of its {self.answered} rounds: {first[kind].text} (round {rounds[0]})"
            for kind, rounds in self.kinds.items()
        )


class Watch:
    """Collects the evidence of rounds; called with a record, it returns the clients that become suspects in that round.

    It knows the rounds that it was called with: after a resume it begins anew, and the ledger has all of them.
    """

    def __init__(self) -> None:
        self._evidence: dict[ClientId, list[Evidence]] = {}
        self._answered: Counter[ClientId] = Counter()
        self._odd: Counter[ClientId] = Counter()
        self._since: dict[ClientId, int] = {}

    def __call__(self, record: Record) -> list[Suspect]:
        """Clients that become suspects in this round."""
        return self.add(look(seen_of(record)))

    def add(self, looked: Looked) -> list[Suspect]:
        """Clients that become suspects by one more round."""
        self._answered.update(looked.answered)
        self._odd.update({one.client for one in looked.evidence if one.kind not in SUPPORTING})
        for one in looked.evidence:
            self._evidence.setdefault(one.client, []).append(one)
        clients = sorted({one.client for one in looked.evidence} - self._since.keys())
        self._since |= {client: looked.index for client in clients if self._is_enough(client)}
        return [self._suspect(client) for client in clients if client in self._since]

    def suspects(self) -> list[Suspect]:
        """Clients that are suspects by all rounds; one that has long been inconspicuous is no longer among them."""
        return [self._suspect(client) for client in sorted(self._since) if self._is_enough(client)]

    def _is_enough(self, client: ClientId) -> bool:
        return self._odd[client] >= max(LEAST_ROUNDS, LEAST_SHARE * self._answered[client])

    def _suspect(self, client: ClientId) -> Suspect:
        return Suspect(client, self._since[client], self._answered[client], tuple(self._evidence[client]))


def seen_of(record: Record) -> RoundSeen:
    """What a round's record says of its clients."""
    unknown = np.full(len(record.ids), np.nan)
    seen = record.diagnostics
    norms, cosines = (unknown, unknown) if seen is None else (seen.norms, seen.cosines)
    refused = {client: reason for client, reason in record.dropped.items() if is_refusal(reason)}
    said = (*record.notes, *(record.weights.notes if record.weights else ()))
    notes = tuple((note.client, str(note.kind), note.text) for note in said if note.client is not None)
    return RoundSeen(record.index, record.ids, norms, cosines, record.facts, refused, notes)


def is_refusal(reason: str) -> bool:
    """Whether a client was left out for what it sent; one that failed or did not answer is not suspicious."""
    return reason.startswith(("fact", "update"))


def look(seen: RoundSeen) -> Looked:
    """What is odd in a round.

    >>> norms, facts = np.array([1, 1.2, 0.9, 30, 1.1]), {"samples": np.full(5, 10.0)}
    >>> [one.text for one in look(RoundSeen(1, (0, 1, 2, 3, 4), norms, np.full(5, 0.4), facts)).evidence]
    ['its update was 27 times as long as the median update']
    """
    found = [*_refused(seen)]
    if len(seen.ids) >= LEAST_COHORT:
        found += [*_lengths(seen), *_directions(seen), *_twins(seen), *_scores(seen), *_claims(seen)]
    found += [Evidence(seen.index, client, OF_NOTES.get(kind, "noted"), text) for client, kind, text in seen.notes]
    first = {(one.client, EVIDENCE.index(one.kind)): one for one in reversed(found)}
    answered = frozenset(seen.ids) | frozenset(seen.refused)
    return Looked(seen.index, answered, tuple(first[key] for key in sorted(first)))


def find_suspects(rounds: Iterable[Looked]) -> list[Suspect]:
    """The suspects after these rounds, ordered by client."""
    watch = Watch()
    for looked in rounds:
        watch.add(looked)
    return watch.suspects()


def _refused(seen: RoundSeen) -> Iterator[Evidence]:
    for client, reason in sorted(seen.refused.items()):
        yield Evidence(seen.index, client, "refused", f"its answer was refused: {reason}")


def _lengths(seen: RoundSeen) -> Iterator[Evidence]:
    learned = seen.norms[seen.norms > 0]
    if not len(learned):  # nobody sent anything, or nothing is known
        return
    middle = float(np.median(learned))
    for client, ratio in zip(seen.ids, (seen.norms / middle).tolist(), strict=True):
        if ratio < ZERO:
            yield Evidence(seen.index, client, "zero", "its update was zero: it brought nothing")
        elif ratio < MIN_NORM_RATIO or ratio > MAX_NORM_RATIO:
            kind: EvidenceKind = "short" if ratio < MIN_NORM_RATIO else "long"
            text = f"its update was {ratio:.2g} times as long as the median update"
            yield Evidence(seen.index, client, kind, text)


def _directions(seen: RoundSeen) -> Iterator[Evidence]:
    middle, deviation = _middle(seen.cosines)
    for client, cosine in zip(seen.ids, seen.cosines.tolist(), strict=True):
        if cosine < AGAINST and cosine < middle - DEVIATIONS * deviation:
            text = f"its update pointed away from the others' (cosine {cosine:.2f}, the round's median {middle:.2f})"
            yield Evidence(seen.index, client, "against", text)


def _twins(seen: RoundSeen) -> Iterator[Evidence]:
    """Clients that sent the same update: same length and same cosine, to the last bit."""
    pairs = list(zip(seen.norms.tolist(), seen.cosines.tolist(), strict=True))
    times = Counter(pairs)
    for client, pair in zip(seen.ids, pairs, strict=True):
        others = times[pair] - 1
        if others and pair[0] > 0 and not math.isnan(pair[1]):
            text = f"its update was the same as that of {others} other{'s' if others > 1 else ''}"
            yield Evidence(seen.index, client, "twin", text)


def _scores(seen: RoundSeen) -> Iterator[Evidence]:
    for name, values in seen.facts.items():
        if not name.startswith(VALIDATED):
            continue
        middle, deviation = _middle(values)
        for client, value in zip(seen.ids, values.tolist(), strict=True):
            if value < LOW_SCORE * middle and value < middle - DEVIATIONS * deviation:
                objective = name.removeprefix(VALIDATED)
                text = (
                    f"with its update the server's rows gave {objective} {value:.2f}, the round's median {middle:.2f}"
                )
                yield Evidence(seen.index, client, "score", text)


def _claims(seen: RoundSeen) -> Iterator[Evidence]:
    claims = seen.facts.get(CLAIMED + SAMPLES, seen.facts.get(SAMPLES))
    if claims is None or not (middle := float(np.median(claims))) > 0:
        return
    for client, value in zip(seen.ids, claims.tolist(), strict=True):
        if value > LARGE_CLAIM * middle:
            text = f"it claimed {value:g} samples, {value / middle:.2g} times the round's median"
            yield Evidence(seen.index, client, "claim", text)


def _middle(values: Vector) -> tuple[float, float]:
    """The median and the median absolute deviation of what is known; NaN where nothing is."""
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    middle = float(np.median(known))
    return middle, float(np.median(np.abs(known - middle)))
