"""Reasons: why a client got its weight, which criterion mattered most, and what would change the weight.

A reason follows from a round's table and the rule that turned it into weights, and from nothing else. Every number in
it can be checked: `Rule.weights` gives the stated weight and the weight of every "what if".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmerit.core.criteria.table import display_name
from fedmerit.core.facts import CLIENT_FACT, IS_WORD
from fedmerit.core.types import Matrix, Vector
from fedmerit.core.weights.scores import (
    Lexicographic,
    Prioritized,
    Score,
    Terms,
    explain_score,
)
from fedmerit.core.weights.weigh import Normalise, normalised, shares

NEAR = 1e-9
"""Weights that differ by less are equal."""
ORDERED = (Prioritized, Lexicographic)
"""Scores in which the order of the criteria counts."""
FAR = 2.0
"""A value is far from the best one where they differ by more than this factor."""
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
LOWER = " (lower is better)"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a table of raw criteria becomes weights: the score of normalised rows, as shares.

    fallback    what weights are proportional to where every score is 0: the dataset sizes, all equal, or all 0 to keep
                the model
    lower       the criteria in which a lower value is better

    >>> Rule(("DS",), Prioritized()).weights(np.array([[30.0], [10.0]])).tolist()
    [0.75, 0.25]
    >>> Rule(("error",), Prioritized(), lower=("error",)).weights(np.array([[1.0], [3.0]])).tolist()
    [0.75, 0.25]
    """

    priority: tuple[str, ...]
    score: Score
    normalise: Normalise = "max"
    fallback: tuple[float, ...] | None = None
    lower: tuple[str, ...] = ()

    def upward(self, raw: Matrix) -> Matrix:
        """The table in which more is better: a lower-is-better value counts as largest + smallest - value."""
        columns = [place for place, name in enumerate(self.priority) if name in self.lower]
        flipped = raw.copy()
        flipped[:, columns] = raw[:, columns].max(axis=0) + raw[:, columns].min(axis=0) - raw[:, columns]
        return flipped

    def table(self, raw: Matrix) -> Matrix:
        """The normalised values."""
        return normalised(self.upward(raw), self.normalise, self.priority)

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
    """One criterion of a client: its raw value, its rank among the clients, and the weight without it.

    rank    1 for the best value of the round; tied clients have the same
    tied    whether another client has the same value
    best    the best raw value of the round, the lowest one where lower is better; `worst` is the opposite end
    alike   the client's weight if every client had its value, so that the criterion could not separate them
    """

    name: str
    value: float
    rank: int
    tied: bool
    best: float
    worst: float
    alike: float
    gate: Gate | None = None

    @property
    def words(self) -> str:
        """The criterion's full name."""
        return display_name(self.name)

    def rank_word(self, clients: int, *, raised: bool | None = None) -> str:
        """Where the value ranks: "the highest of 4", "second of 4", "far below the highest (0.9)".

        raised  whether the criterion raised the client's weight: it is then compared with the values that are worse,
                or with the better ones where it lowered the weight. None: it did neither
        """
        ends = ("largest", "smallest") if self.name == "DS" else ("highest", "lowest")
        lower = self.best < self.worst
        best, worst = reversed(ends) if lower else ends
        if self.value in (self.best, self.worst):
            end = best if self.value == self.best else worst
            return f"{'among ' if self.tied else ''}the {end} of {clients}"
        if raised is False:
            ratio = max(self.value, self.best) / min(self.value, self.best) if self.value and self.best else np.inf
            far = "far " if ratio > FAR else ""
            return f"{far}{'above' if lower else 'below'} the {best} ({number(self.best)})"
        if raised and self.rank > (clients + 1) / 2:
            return f"{'below' if lower else 'above'} the {worst} ({number(self.worst)})"
        rank = ORDINALS[self.rank - 1] if self.rank <= len(ORDINALS) else f"number {self.rank}"
        return f"{'tied for ' if self.tied else ''}{rank} of {clients}"


@dataclass(frozen=True, slots=True)
class Change:
    """A change, in words, and the weight that the client would get with it."""

    words: str
    weight: float


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one client of a round has its weight.

    weight      the rule's result; `kept` is what the client got, which a cap may have changed
    place       1 for the largest weight of `clients`
    decided     the criterion that mattered most: it moves the weight furthest away from an equal share; where none
                does, the one that moves it furthest at all; None where no criterion moves it
    terms       the parts of the score; None for a user-defined score
    total       the sum of all scores: weight = score / total, unless it is 0
    ordered     whether the order of the criteria counts; `ranked`: whether later criteria only break ties
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
    ranked: bool = False
    lower: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    zero: str = ""

    @property
    def equal(self) -> float:
        """An equal share."""
        return 1 / self.clients

    def sentence(self, name: str, of: str = "the round") -> str:
        """The reason as one sentence, for readers who have not heard of scores."""
        got = f"{called(name)} got {percent(self.kept)} of {of}"
        if self.clients == 1:
            return f"{got}: it was the only client."
        above = self.kept - self.equal
        than = "the same as" if abs(above) < NEAR else "more than" if above > 0 else "less than"
        got += f", {than} an equal share ({percent(self.equal)})"
        if self.zero:
            return f"{got}: every score is 0, so {self.zero}."
        clear = [part for part in self.parts if not self._is_odd(part)]
        supports = sorted((part for part in clear if self._pull(part) > NEAR), key=lambda part: -self._pull(part))
        opposes = sorted((part for part in clear if self._pull(part) < -NEAR), key=self._pull)
        rest = [part for part in self.parts if part not in supports and part not in opposes]
        if self.ranked:  # a later criterion without an effect broke no tie
            rest = [part for part in rest if part == self.parts[0] or abs(self.weight - part.alike) > NEAR]
        because = ", and ".join(map(self._clause, supports))
        but = ", and ".join(map(self._clause, opposes))
        causes = f"because {because}" + (f", but {but}" if but else "") if supports else but
        clauses = "; ".join(filter(None, (causes, *map(self._clause, rest), self._order)))
        if clauses.endswith(LOWER):
            clauses = clauses.removesuffix(LOWER) + "; lower is better"
        return f"{got}{',' if supports else ':'} {clauses}."

    def _pull(self, part: CriterionReason) -> float:
        """How far a criterion moved the weight away from an equal share; negative where it moved it towards one."""
        return float(np.sign(self.weight - self.equal)) * (self.weight - part.alike)

    def _is_odd(self, part: CriterionReason) -> bool:
        """Whether a value is at the wrong end for its effect, as the lowest of all that raised the weight.

        This happens where other clients lose more by the criterion. As a cause it would puzzle a reader, so it is only
        listed, unless it mattered most.
        """
        if part.gate is not None or part.name == self.decided or part.best == part.worst:
            return False
        return part.value == (part.worst if self.weight > part.alike else part.best)

    def _clause(self, part: CriterionReason) -> str:
        first = ", which counts first," if self.ordered and part.name == self.parts[0].name else ""
        value = number(part.value)
        if is_word(part.name):
            return f"its {as_statement(part.name, part.value)}{first.removesuffix(',')}"
        if part.gate is not None:
            gate = part.gate
            measured, accuracy, least = map(number, (gate.measured, gate.accuracy, gate.least))
            return (
                f"its {part.words}{first} counts as 0 instead of {measured}, because its accuracy at the server, "
                f"{accuracy}, is below the gate of {least}"
            )
        if part.best == part.worst:
            return f"{part.words}{first} is the same for all clients ({value})"
        raised = None if abs(self.weight - part.alike) <= NEAR else self.weight > part.alike
        rank = part.rank_word(self.clients, raised=raised)
        if part.name in self.lower:
            rank = f"{rank.removesuffix(')')}; lower is better)" if rank.endswith(")") else rank + LOWER
        return f"its {part.words}, {value}{first or ','} is {rank}"

    @property
    def _order(self) -> str:
        """Of a lexicographic score, the order and the rank that it gives."""
        first, *later = (part.words for part in self.parts)
        order = f"first {', then '.join([first, *later])}" if later else f"by {first}"
        return f"{order}: rank {self.place} of {self.clients}" if self.ranked else ""

    def lines(self, name: str, of: str = "the round") -> list[str]:
        """The sentence, the criterion that mattered most, the arithmetic, and what would change the weight."""
        lines = [self.sentence(name, of)]
        most = next((part for part in self.parts if part.name == self.decided), None)
        if most is not None and not self.zero:
            had = f"every client had {number(most.value)}{' rows' if most.name == 'DS' else ''}"
            subject = most.words
            if is_word(most.name):
                subject = f"whether {as_statement(most.name, 1)}"
                had = f"every client's {as_statement(most.name, most.value, verb='were')}"
            would = f"{called(name)} would get {percent(most.alike)}{self._before}"
            lines.append(f"{capital(subject)} mattered most: if {had}, {would}.")
        lines.append(f"Score: {self.arithmetic}.")
        if self._before:
            cut = f"the cap reduced it to {percent(self.kept)}"
            grew = f"its share of the weight that the cap took from other clients raised it to {percent(self.kept)}"
            lines.append(f"Its score gives {percent(self.weight)}; {cut if self.kept < self.weight else grew}.")
        if self.changes:
            would = "; ".join(f"{percent(one.weight)} {one.words}" for one in self.changes)
            lines.append(f"It would get {would}{self._before}.")
        return lines

    @property
    def _before(self) -> str:
        """Where a cap changed the weight: hypothetical weights are stated before the cap."""
        return " before the cap" if abs(self.kept - self.weight) > NEAR else ""

    @property
    def arithmetic(self) -> str:
        """The steps from the score's terms to the weight, in numbers."""
        score = f"{self.score:.5g}" if self.terms is None else str(self.terms)
        if not self.total:
            return f"{score}; every score is 0"
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

    raw         the clients' values, also in columns in which lower is better
    kept        the client's final weight, where a cap may have changed it
    samples     the clients' dataset sizes, for the weight under FedAvg
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
        _criterion_reason(name, raw[:, i], place, alike[i], gates.get(name), lower=name in rule.lower)
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
        isinstance(rule.score, Lexicographic),
        rule.lower,
        zero="" if scores.any() else when_zero(rule),
    )
    changes = tuple(changes_of(raw, place, rule, decided, samples, gates)) if len(raw) > 1 else ()
    return replace(reason, changes=changes)


def _criterion_reason(
    name: str, values: Vector, place: int, alike: float, gate: Gate | None, *, lower: bool
) -> CriterionReason:
    mine, low, high = float(values[place]), float(values.min()), float(values.max())
    rank = 1 + int((values < mine if lower else values > mine).sum())
    best, worst = (low, high) if lower else (high, low)
    return CriterionReason(name, mine, rank, int((values == mine).sum()) > 1, best, worst, alike, gate)


def changes_of(
    raw: Matrix,
    place: int,
    rule: Rule,
    decided: str | None,
    samples: Sequence[float] | None,
    gates: Mapping[str, Gate],
) -> list[Change]:
    """What would change the weight: FedAvg, a median value, another criterion first, no gate."""
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
    """The weight with the median value of the other clients in this criterion, all else unchanged."""
    column = rule.priority.index(name)
    others = np.sort(np.delete(raw[:, column], place))
    median = float(others[(len(others) - 1) // 2])  # a value that some client has
    if median == raw[place, column]:
        return []
    changed = raw.copy()
    changed[place, column] = median
    if is_word(name):
        words = f"if its {as_statement(name, median, verb='were')}"
    else:
        value = f"{number(median)} rows" if name == "DS" else f"its {display_name(name)} at {number(median)}"
        words = f"with {value}, the median of the other clients"
    return [Change(words, float(rule.weights(changed)[place]))]


def is_word(name: str) -> bool:
    """Whether a criterion compares a client's fact with a word, so that its values are 1 and 0."""
    return name.startswith(CLIENT_FACT) and IS_WORD in name


def as_statement(name: str, value: float, *, verb: str = "is") -> str:
    """Such a criterion as a statement.

    >>> as_statement("fact:job is nurse", 1), as_statement("fact:job is nurse", 0, verb="were")
    ('job is nurse', 'job were not nurse')
    """
    of, _, word = name.removeprefix(CLIENT_FACT).partition(IS_WORD)
    return f"{of} {verb} {'' if value else 'not '}{word}"


def with_column(raw: Matrix, column: int, value: float) -> Matrix:
    """The table with one value in a whole column: a criterion that does not separate the clients."""
    changed = raw.copy()
    changed[:, column] = value
    return changed


def when_zero(rule: Rule) -> str:
    """What happens where every score is 0."""
    if rule.fallback is None or len(set(rule.fallback)) == 1:
        nothing = rule.fallback is not None and not any(rule.fallback)
        return "the model did not change" if nothing else "all clients get the same weight"
    return "weights are proportional to dataset size"


def percent(weight: float) -> str:
    """A weight for people: two decimals, more where they would show nothing."""
    return f"{weight:.2%}" if weight >= 0.001 or weight == 0 else f"{100 * weight:.2g}%"


def number(value: float) -> str:
    """A value for people: whole numbers in full, others with five digits; no exponent for large numbers.

    >>> number(1200.0), number(0.123456)
    ('1,200', '0.12346')
    """
    return f"{value:,.0f}" if value == round(value) or value >= 1e5 else f"{value:,.5g}"


def called(name: str) -> str:
    """What a client is called in a sentence: a name that is only a number needs a word before it."""
    return f"client {name}" if name.isdecimal() else name


def capital(words: str) -> str:
    """The words with a capital letter in front."""
    return words[:1].upper() + words[1:]
