"""Reasons: why a client got its weight, what decided, and what would change it; every number is computed again.

A reason is made of a round's table and of the rule that turned it into weights, and nothing else. So whoever has both
can check it: `Rule.weights` gives the weight that is told, and the weight of every "what if".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fedmerit.core.criteria.table import display_name
from fedmerit.core.facts import CLIENT_FACT, IS_WORD
from fedmerit.core.types import Matrix, Vector
from fedmerit.core.weights.scores import Prioritized, PrioritizedAnd, PrioritizedMean, Score, Terms, explain_score
from fedmerit.core.weights.weigh import Normalise, normalised, shares

NEAR = 1e-9
"""Weights nearer than this are the same."""
ORDERED = (Prioritized, PrioritizedAnd, PrioritizedMean)
"""Scores in which the order of the criteria counts."""
Standing: TypeAlias = Literal["same", "highest", "lowest", "among the highest", "among the lowest", "between"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How a table of raw criteria became weights: the score of normalised rows, as shares.

    fallback    what weights follow where every score is 0: the samples, all alike, or all 0 to keep the model

    >>> Rule(("DS",), Prioritized(), "sum").weights(np.array([[30.0], [10.0]])).tolist()
    [0.75, 0.25]
    """

    priority: tuple[str, ...]
    score: Score
    normalise: Normalise = "sum"
    fallback: tuple[float, ...] | None = None

    def table(self, raw: Matrix) -> Matrix:
        """The normalised values."""
        return normalised(raw, self.normalise, self.priority)

    def scores(self, raw: Matrix) -> Vector:
        """The score of each client."""
        return np.asarray(self.score(self.table(raw)), dtype=np.float64)

    def weights(self, raw: Matrix) -> Vector:
        """The weight of each client."""
        scores = self.scores(raw)
        fallback = np.ones(len(raw)) if self.fallback is None else np.array(self.fallback)
        return shares(scores if scores.any() else fallback)

    @property
    def ordered(self) -> bool:
        """Whether the order of its criteria counts."""
        return isinstance(self.score, ORDERED) and len(self.priority) > 1


@dataclass(frozen=True, slots=True)
class Gate:
    """A criterion that the server set to 0 for a client: what it measured, and the accuracy that was too low."""

    measured: float
    accuracy: float
    least: float


@dataclass(frozen=True, slots=True)
class CriterionReason:
    """One criterion of a client: its value, how that stands among the clients, and the weight without it.

    alike   the client's weight if every client had its value: what is left when the criterion tells nobody apart
    """

    name: str
    value: float
    normalised: float
    rank: int
    standing: Standing
    alike: float
    gate: Gate | None = None

    @property
    def words(self) -> str:
        """The criterion's name, spelt out."""
        return display_name(self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """What would change a weight: the words, and the weight that it would be."""

    words: str
    weight: float


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one client of a round has its weight.

    weight      what the rule gives; `kept` is what the client got, which a cap may have changed
    place       1 for the heaviest of `clients`
    decided     the criterion that moves the weight most in its direction, above or below an equal share; where none
                does, the one that moves it most at all; None where no criterion moves it
    terms       what the score is made of; None for a score of a user's own
    total       the sum of all scores: weight = score / total, but where it is 0
    """

    weight: float
    kept: float
    place: int
    clients: int
    parts: tuple[CriterionReason, ...]
    decided: str | None
    score: float
    total: float
    terms: Terms | None
    ordered: bool
    changes: tuple[Change, ...] = ()
    zero: str = ""

    @property
    def equal(self) -> float:
        """An equal share."""
        return 1 / self.clients

    def sentence(self, name: str, of: str = "the round") -> str:
        """The reason as one sentence for people who know nothing of scores."""
        got = f"{called(name)} got {percent(self.kept)} of {of}"
        if self.clients == 1:
            return f"{got}: it was the only client."
        above = self.kept - self.equal
        than = "the same as" if abs(above) < NEAR else "more than" if above > 0 else "less than"
        got += f", {than} an equal share ({percent(self.equal)})"
        if self.zero:
            return f"{got}: every score was 0, so {self.zero}."
        telling = [part for part in self.parts if not self._is_odd(part)]
        supports = sorted((part for part in telling if self._pull(part) > NEAR), key=lambda part: -self._pull(part))
        opposes = sorted((part for part in telling if self._pull(part) < -NEAR), key=self._pull)
        rest = "; ".join(self._clause(part) for part in self.parts if part not in supports and part not in opposes)
        because = ", and ".join(map(self._clause, supports))
        although = ", and ".join(map(self._clause, opposes))
        if not supports:
            return f"{got}: {'; '.join(filter(None, (although, rest)))}."
        told = f"because {because}" + (f", although {although}" if although else "")
        return f"{got}, {'; '.join(filter(None, (told, rest)))}."

    def _pull(self, part: CriterionReason) -> float:
        """How far a criterion moved the weight away from an equal share; below 0 where it moved it towards one."""
        return float(np.sign(self.weight - self.equal)) * (self.weight - part.alike)

    def _is_odd(self, part: CriterionReason) -> bool:
        """Whether a value stands at the end that its pull is not from: the lowest of all that raised the weight.

        It may, where others lose more by the criterion; as a cause it would puzzle a reader. What decided is told.
        """
        if part.gate is not None or part.name == self.decided:
            return False
        return part.standing.endswith("lowest" if self.weight > part.alike else "highest")

    def _clause(self, part: CriterionReason) -> str:
        first = ", which counts first," if self.ordered and part.name == self.parts[0].name else ""
        value = number(part.value)
        if is_word(part.name):
            return f"its {worded(part.name, part.value)}{first.removesuffix(',')}"
        if part.gate is not None:
            gate = part.gate
            measured, accuracy, least = map(number, (gate.measured, gate.accuracy, gate.least))
            return (
                f"its {part.words}{first} counts 0 instead of {measured}, since its accuracy at the server, "
                f"{accuracy}, is below the gate of {least}"
            )
        if part.standing == "same":
            return f"{part.words}{first} is the same for all ({value})"
        comma = "" if first else ","
        where = f"number {part.rank}" if part.standing == "between" else part.standing
        where = f"the {where}" if part.standing in ("highest", "lowest") else where
        return f"its {part.words}, {value}{first}{comma} is {where} of {self.clients}"

    def lines(self, name: str, of: str = "the round") -> list[str]:
        """The sentence, what decided, the arithmetic, and what would change the weight."""
        told = [self.sentence(name, of)]
        if self.decided is not None and not self.zero:
            alike = next(part.alike for part in self.parts if part.name == self.decided)
            would = f"it would be {percent(alike)}{self._before}"
            told.append(f"{capital(display_name(self.decided))} decided: if all had its value, {would}.")
        told.append(f"Score: {self.arithmetic}.")
        if abs(self.kept - self.weight) > NEAR:
            cut = f"was cut by the cap to {percent(self.kept)}"
            grew = f"grew to {percent(self.kept)} with its part of what the cap cut from others"
            told.append(f"Its score earned {percent(self.weight)}, which {cut if self.kept < self.weight else grew}.")
        if self.changes:
            would = "; ".join(f"{percent(one.weight)} {one.words}" for one in self.changes)
            told.append(f"It would get {would}{self._before}.")
        return told

    @property
    def _before(self) -> str:
        """Where a cap changed the weight: what is told of other weights is told of them before the cap."""
        return " before the cap" if abs(self.kept - self.weight) > NEAR else ""

    @property
    def arithmetic(self) -> str:
        """From the terms of the score to the weight, in numbers."""
        score = f"{self.score:.5g}" if self.terms is None else str(self.terms)
        if not self.total:
            return f"{score}; every score was 0"
        return f"{score}; weight = {self.score:.5g} / {self.total:.5g} = {percent(self.weight)}"


def explain(
    raw: Matrix,
    place: int,
    rule: Rule,
    *,
    kept: float | None = None,
    samples: Sequence[float] | None = None,
    gates: Mapping[str, Gate] | None = None,
) -> Reason:
    """Why the client in this row of the table has its weight.

    kept        the weight that it got, where something may have changed it after the score
    samples     the rows of each client, for what FedAvg would give
    gates       the criteria that a gate set to 0 for this client

    >>> table = np.array([[2.0, 30.0], [2.0, 60.0], [2.0, 110.0]])
    >>> explain(table, 0, Rule(("LD", "DS"), Prioritized(), "max")).decided
    'DS'
    """
    weights, scores, table = rule.weights(raw), rule.scores(raw), rule.table(raw)
    alike = [float(rule.weights(with_column(raw, i, raw[place, i]))[place]) for i in range(raw.shape[1])]
    moved = weights[place] - np.array(alike)
    pulls = moved * np.sign(weights[place] - 1 / len(raw))
    most = int(pulls.argmax()) if pulls.max() > NEAR else int(np.abs(moved).argmax())
    gates = gates or {}
    parts = tuple(
        CriterionReason(
            name,
            float(raw[place, i]),
            float(table[place, i]),
            1 + int((raw[:, i] > raw[place, i]).sum()),
            standing(raw[:, i], place),
            alike[i],
            gates.get(name),
        )
        for i, name in enumerate(rule.priority)
    )
    decided = rule.priority[most] if abs(moved[most]) > NEAR and scores.any() else None
    reason = Reason(
        float(weights[place]),
        float(weights[place]) if kept is None else kept,
        1 + int((weights > weights[place] + NEAR).sum()),
        len(raw),
        parts,
        decided,
        float(scores[place]),
        float(scores.sum()),
        explain_score(rule.score, table, place),
        rule.ordered,
        zero="" if scores.any() else when_zero(rule),
    )
    changes = tuple(changes_of(raw, place, rule, decided, samples, gates)) if len(raw) > 1 else ()
    return replace(reason, changes=changes)


def changes_of(
    raw: Matrix,
    place: int,
    rule: Rule,
    decided: str | None,
    samples: Sequence[float] | None,
    gates: Mapping[str, Gate],
) -> list[Change]:
    """What would change the weight: FedAvg, another value of what decided, another criterion first, no gate."""
    changes = []
    if samples is not None and rule.priority != ("DS",) and any(samples):
        changes.append(Change("with FedAvg", float(shares(np.array(samples, dtype=np.float64))[place])))
    if decided is not None and decided not in gates:
        changes += value_changes(raw, place, rule, decided)
    if rule.ordered:
        first = decided if decided not in (None, rule.priority[0]) else rule.priority[1]
        order = (first, *(name for name in rule.priority if name != first))
        columns = [rule.priority.index(str(name)) for name in order]
        other = replace(rule, priority=tuple(map(str, order)))
        changes.append(Change(f"with {display_name(str(first))} first", float(other.weights(raw[:, columns])[place])))
    if gates:
        opened = raw.copy()
        for name, gate in gates.items():
            opened[place, rule.priority.index(name)] = gate.measured
        changes.append(Change("without the gate", float(rule.weights(opened)[place])))
    now = float(rule.weights(raw)[place])
    return [one for one in changes if abs(one.weight - now) > NEAR]


def value_changes(raw: Matrix, place: int, rule: Rule, name: str) -> list[Change]:
    """The weight with the value of a client in the middle of the others, all else unchanged."""
    column = rule.priority.index(name)
    others = np.sort(np.delete(raw[:, column], place))
    middle = float(others[(len(others) - 1) // 2])
    own = float(raw[place, column])
    if middle == own:
        return []
    changed = raw.copy()
    changed[place, column] = middle
    if is_word(name):
        return [Change(f"if its {worded(name, middle, verb='were')}", float(rule.weights(changed)[place]))]
    more = f"{number(abs(middle - own))} {'more' if middle > own else 'fewer'} samples" if name == "DS" else ""
    words = (
        f"with {more}, as the median of the others"
        if more
        else (f"with its {display_name(name)} at {number(middle)}, the median of the others")
    )
    return [Change(words, float(rule.weights(changed)[place]))]


def is_word(name: str) -> bool:
    """Whether a criterion is a word that a client's own fact is or is not: 1 or 0."""
    return name.startswith(CLIENT_FACT) and IS_WORD in name


def worded(name: str, value: float, *, verb: str = "is") -> str:
    """Such a criterion as a statement.

    >>> worded("fact:job is nurse", 1), worded("fact:job is nurse", 0, verb="were")
    ('job is nurse', 'job were not nurse')
    """
    of, _, word = name.removeprefix(CLIENT_FACT).partition(IS_WORD)
    return f"{of} {verb} {'' if value else 'not '}{word}"


def with_column(raw: Matrix, column: int, value: float) -> Matrix:
    """The table with one value in a whole column: a criterion that tells nobody apart."""
    changed = raw.copy()
    changed[:, column] = value
    return changed


def standing(values: Vector, place: int) -> Standing:
    """How a client's value stands among all."""
    mine = values[place]
    if (values == mine).all():
        return "same"
    several = int((values == mine).sum()) > 1
    if mine == values.max():
        return "among the highest" if several else "highest"
    if mine == values.min():
        return "among the lowest" if several else "lowest"
    return "between"


def when_zero(rule: Rule) -> str:
    """What weights follow where every score is 0."""
    if rule.fallback is None or len(set(rule.fallback)) == 1:
        nothing = rule.fallback is not None and not any(rule.fallback)
        return "the model was kept as it was" if nothing else "all weigh the same"
    return "weights follow the numbers of samples"


def percent(weight: float) -> str:
    """A weight for people: two decimals, more where they would show nothing."""
    return f"{weight:.2%}" if weight >= 0.001 or weight == 0 else f"{100 * weight:.2g}%"


def number(value: float) -> str:
    """A value for people: whole numbers whole, others with five digits, none with an exponent for being large."""
    return f"{value:.0f}" if value == round(value) or value >= 1e5 else f"{value:.5g}"


def called(name: str) -> str:
    """What a client is called in a sentence: a name that is only a number needs a word before it."""
    return f"client {name}" if name.isdecimal() else name


def capital(words: str) -> str:
    """The words with a capital letter in front."""
    return words[:1].upper() + words[1:]
