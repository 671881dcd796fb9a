"""Suspects: clients that were outliers in many rounds, each with the evidence in words and no score.

`look` finds the outliers of one round. A client becomes a suspect after evidence in at least `LEAST_ROUNDS` rounds and
in at least `LEAST_SHARE` of the rounds in which it answered. Claims do not suffice: a claim is the same number in every
round, and most large clients are honest. Suspects are not excluded here; the recipe decides about that.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedmerit.core.facts import CLAIMED, SAMPLES, VALIDATED
from fedmerit.core.state import Record
from fedmerit.core.types import ClientId, Vector, answered

EvidenceKind: TypeAlias = Literal["zero", "short", "long", "against", "twin", "score", "refused", "claim", "noted"]
EVIDENCE: tuple[str, ...] = get_args(EvidenceKind)
SUPPORTING = ("claim", "noted")
"""Evidence that counts only together with other evidence: it repeats one claimed number, or what a cap cut."""

OF_NOTES: Mapping[str, EvidenceKind] = {"claim-cut": "claim", "claim-changed": "claim"}
"""Evidence kind for each kind of note about one client; all remaining kinds are `noted`."""

LEAST_ROUNDS, LEAST_SHARE = 3, 0.5
LEAST_COHORT = 4
"""Smallest round in which outliers are looked for: with fewer clients the median means little."""
ZERO, MIN_NORM_RATIO, MAX_NORM_RATIO = 1e-6, 0.1, 8.0
"""Norms of an update, as multiples of the median, below or above which it is an outlier.

`NormInlier` reads the same thresholds. Clients with a single label have very short updates, hence the low minimum.
"""
AGAINST, DEVIATIONS = -0.2, 2.5
"""An outlier has a cosine below the first, and this many median absolute deviations below the round's median."""
LOW_SCORE = 0.5
"""An outlier scores below this share of the round's median on the server's rows, and as many deviations below it."""
LARGE_CLAIM = 5.0
"""Claimed samples above this multiple of the round's median are evidence."""


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """What the server observed in a round: weighed clients in client order, and refused clients.

    `refused` holds the reasons of clients whose answer failed the check, `notes` other notes about single clients as
    (client, kind of note, text).
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
    """One observation about a client in a round, in words."""

    round: int
    client: ClientId
    kind: EvidenceKind
    text: str


@dataclass(frozen=True, slots=True)
class Looked:
    """The evidence of one round, and the clients that answered."""

    index: int
    answered: frozenset[ClientId]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A client with evidence against it in many rounds.

    since      the round in which the evidence became sufficient
    answered   the number of rounds in which it answered
    evidence   all evidence about it, by round
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
        """One sentence per kind of evidence, with an example each.

        >>> seen = [Evidence(index, 7, "zero", "its update was zero") for index in (1, 2, 4)]
        >>> Suspect(7, since=4, answered=5, evidence=tuple(seen)).summary
        'in 3 of its 5 rounds: its update was zero (round 1)'
        """
        first = {str(one.kind): one for one in reversed(self.evidence)}
        return "; ".join(
            f"in {len(rounds)} of its {self.answered} rounds: {first[kind].text} (round {rounds[0]})"
            for kind, rounds in self.kinds.items()
        )


class Watch:
    """Collect the evidence of rounds; a call with a record returns the clients that become suspects in that round.

    It covers the rounds it was called with: after a resume it starts empty, while the ledger has all rounds.
    """

    def __init__(self) -> None:
        self._evidence: dict[ClientId, list[Evidence]] = {}
        self._answered: Counter[ClientId] = Counter()
        self._odd: Counter[ClientId] = Counter()
        self._since: dict[ClientId, int] = {}

    def __call__(self, record: Record) -> list[Suspect]:
        """Return the clients that become suspects in this round."""
        return self.add(look(seen_of(record)))

    def add(self, looked: Looked) -> list[Suspect]:
        """Add one round and return the clients that become suspects in it."""
        self._answered.update(looked.answered)
        self._odd.update({one.client for one in looked.evidence if one.kind not in SUPPORTING})
        for one in looked.evidence:
            self._evidence.setdefault(one.client, []).append(one)
        clients = sorted({one.client for one in looked.evidence} - self._since.keys())
        self._since |= {client: looked.index for client in clients if self._is_enough(client)}
        return [self._suspect(client) for client in clients if client in self._since]

    def suspects(self) -> list[Suspect]:
        """Return the suspects by all rounds so far; a client that has long been inconspicuous is no longer one."""
        return [self._suspect(client) for client in sorted(self._since) if self._is_enough(client)]

    def _is_enough(self, client: ClientId) -> bool:
        return self._odd[client] >= max(LEAST_ROUNDS, LEAST_SHARE * self._answered[client])

    def _suspect(self, client: ClientId) -> Suspect:
        return Suspect(client, self._since[client], self._answered[client], tuple(self._evidence[client]))


def seen_of(record: Record) -> RoundSeen:
    """Collect what a round's record contains about its clients."""
    unknown = np.full(len(record.ids), np.nan)
    seen = record.diagnostics
    norms, cosines = (unknown, unknown) if seen is None else (seen.norms, seen.cosines)
    refused = {client: reason for client, reason in record.dropped.items() if is_refusal(reason)}
    all_notes = (*record.notes, *(record.weights.notes if record.weights else ()))
    notes = tuple((note.client, str(note.kind), note.text) for note in all_notes if note.client is not None)
    return RoundSeen(record.index, record.ids, norms, cosines, record.facts, refused, notes)


def is_refusal(reason: str) -> bool:
    """Whether a client was dropped for what it sent; a client that failed or did not answer is not suspicious."""
    return reason.startswith(("fact", "update"))


def look(seen: RoundSeen) -> Looked:
    """Find the outliers of a round.

    >>> norms, facts = np.array([1, 1.2, 0.9, 30, 1.1]), {"samples": np.full(5, 10.0)}
    >>> [one.text for one in look(RoundSeen(1, (0, 1, 2, 3, 4), norms, np.full(5, 0.4), facts)).evidence]
    ['its update was 27 times as long as the median update']
    """
    seen = _without_remembered(seen)
    evidence = [*_refused(seen)]
    if len(seen.ids) >= LEAST_COHORT:
        evidence += [*_lengths(seen), *_directions(seen), *_twins(seen), *_scores(seen), *_claims(seen)]
    evidence += [Evidence(seen.index, client, OF_NOTES.get(kind, "noted"), text) for client, kind, text in seen.notes]
    first = {(one.client, EVIDENCE.index(one.kind)): one for one in reversed(evidence)}
    answered = frozenset(seen.ids) | frozenset(seen.refused)
    return Looked(seen.index, answered, tuple(first[key] for key in sorted(first)))


def _without_remembered(seen: RoundSeen) -> RoundSeen:
    """Only clients that answered in the round: an earlier answer is no new evidence."""
    places = np.flatnonzero(answered(seen.facts, len(seen.ids)))
    ids = tuple(seen.ids[place] for place in places)
    facts = {name: values[places] for name, values in seen.facts.items()}
    notes = tuple(note for note in seen.notes if note[0] in ids or note[0] not in seen.ids)
    return RoundSeen(seen.index, ids, seen.norms[places], seen.cosines[places], facts, seen.refused, notes)


def find_suspects(rounds: Iterable[Looked]) -> list[Suspect]:
    """Return the suspects after these rounds, ordered by client."""
    watch = Watch()
    for looked in rounds:
        watch.add(looked)
    return watch.suspects()


def _refused(seen: RoundSeen) -> Iterator[Evidence]:
    for client, reason in sorted(seen.refused.items()):
        yield Evidence(seen.index, client, "refused", f"its answer was rejected: {reason}")


def _lengths(seen: RoundSeen) -> Iterator[Evidence]:
    learned = seen.norms[seen.norms > 0]
    if not len(learned):  # every update is zero, or the record has no norms
        return
    middle = float(np.median(learned))
    for client, ratio in zip(seen.ids, (seen.norms / middle).tolist(), strict=True):
        if ratio < ZERO:
            yield Evidence(seen.index, client, "zero", "its update was zero")
        elif ratio < MIN_NORM_RATIO or ratio > MAX_NORM_RATIO:
            kind: EvidenceKind = "short" if ratio < MIN_NORM_RATIO else "long"
            text = f"its update was {ratio:.2g} times as long as the median update"
            yield Evidence(seen.index, client, kind, text)


def _directions(seen: RoundSeen) -> Iterator[Evidence]:
    middle, deviation = _middle(seen.cosines)
    for client, cosine in zip(seen.ids, seen.cosines.tolist(), strict=True):
        if cosine < AGAINST and cosine < middle - DEVIATIONS * deviation:
            text = f"its update opposed the remaining clients' (cosine {cosine:.2f}, median of the round {middle:.2f})"
            yield Evidence(seen.index, client, "against", text)


def _twins(seen: RoundSeen) -> Iterator[Evidence]:
    """Clients with identical updates: the norm and the cosine agree to the last bit, which needs no pair distances."""
    pairs = list(zip(seen.norms.tolist(), seen.cosines.tolist(), strict=True))
    times = Counter(pairs)
    for client, pair in zip(seen.ids, pairs, strict=True):
        copies = times[pair] - 1
        if copies and pair[0] > 0 and not math.isnan(pair[1]):
            text = f"its update was identical to that of {copies} other client{'s' if copies > 1 else ''}"
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
                    f"its update scored {objective} {value:.2f} on the server's rows (median of the round {middle:.2f})"
                )
                yield Evidence(seen.index, client, "score", text)


def _claims(seen: RoundSeen) -> Iterator[Evidence]:
    claims = seen.facts.get(CLAIMED + SAMPLES, seen.facts.get(SAMPLES))
    if claims is None or not (middle := float(np.median(claims))) > 0:
        return
    for client, value in zip(seen.ids, claims.tolist(), strict=True):
        if value > LARGE_CLAIM * middle:
            text = f"it claimed {value:g} samples, {value / middle:.2g} times the median of the round"
            yield Evidence(seen.index, client, "claim", text)


def _middle(values: Vector) -> tuple[float, float]:
    """Median and median absolute deviation of the values that are not NaN; (NaN, NaN) if there are none."""
    finite = values[~np.isnan(values)]
    if not len(finite):
        return math.nan, math.nan
    middle = float(np.median(finite))
    return middle, float(np.median(np.abs(finite - middle)))
