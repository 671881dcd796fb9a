"""Clients' facts before training, and how much each criterion would change their weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.criteria.client_fact import NAME, parse_client_fact
from fedmerit.core.criteria.criterion import Criterion, FunctionCriterion
from fedmerit.core.criteria.table import CRITERIA, Attribute
from fedmerit.core.facts import (
    ATTRIBUTE,
    CLIENT_FACT,
    FACTS,
    IS_WORD,
    OF_TRAINING,
    find_fact,
    measure,
)
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import VISIBLE, shares, total_variation
from fedmerit.errors import DataError
from fedmerit.tasks.federation import Federation


@dataclass(frozen=True, slots=True)
class Separation:
    """Spread of a criterion over the clients: smallest, median and largest value, and the weight that it moves.

    `moved` is the total variation distance between equal weights and weights by this criterion alone.
    """

    criterion: str
    least: float
    median: float
    largest: float
    moved: float

    @property
    def separates(self) -> bool:
        """Whether the criterion moves a visible share of the weight."""
        return self.moved >= VISIBLE


def measured_facts(federation: Federation, criteria: Sequence[Criterion] = ()) -> dict[str, Vector]:
    """Measure all facts that need no training, one value per client, including those that the criteria read.

    Facts that the data do not have (the share of sharp images, of a table) are skipped, unless a criterion reads them.
    """
    facts: dict[str, Vector] = {}
    required = (name for criterion in criteria for name in criterion.required_facts)
    names = [name for name in required if find_fact(name).measure is not None and name not in OF_TRAINING]
    for name in dict.fromkeys((*_measurable(federation), *names)):
        try:
            facts[name] = fact_of_clients(federation, name)
        except DataError:
            if name in names:
                raise
    return facts


def fact_of_clients(federation: Federation, name: str) -> Vector:
    """Measure one fact of every client on its training rows."""
    return np.array([measure(federation.samples(client), [name])[name] for client in range(len(federation.names))])


def _measurable(federation: Federation) -> Iterator[str]:
    yield from (fact.name for fact in FACTS.values() if fact.measure is not None)
    for name, column in federation.train.attributes.items():
        if np.issubdtype(column.dtype, np.number) and len(column) and column.min() >= 0 and column.max() <= 1:
            yield f"{ATTRIBUTE}{name}"
    words = {name for name, values in federation.facts.items() if any(isinstance(value, str) for value in values)}
    for name, values in federation.facts.items():
        yield from (
            (f"{CLIENT_FACT}{name} is {word}" for word in dict.fromkeys(map(str, values)))
            if name in words
            else (f"{CLIENT_FACT}{name}",)
        )


def readable_criteria(facts: Mapping[str, Vector], first: Sequence[Criterion] = ()) -> list[Criterion]:
    """The criteria that can be computed from these facts: `first`, then the remaining built-in ones.

    Criteria `fact:NAME is TEXT` are included if at least two clients share the text; otherwise one client would get all
    the weight.
    """
    plain = [each for each in CRITERIA.values() if isinstance(each, FunctionCriterion) and each.required_facts]
    attributes = [Attribute(name.removeprefix(ATTRIBUTE)) for name in facts if name.startswith(ATTRIBUTE)]
    client_facts = [parse_client_fact(name) for name, values in facts.items() if _can_be_criterion(name, values)]
    by_name = {each.name: each for each in (*first, *plain, *attributes, *client_facts)}
    return [each for each in by_name.values() if each.required_facts and set(each.required_facts) <= set(facts)]


def _can_be_criterion(fact: str, values: Vector) -> bool:
    """Whether a priority can name this fact (it has no spaces), and at least two clients share its text."""
    name = fact.removeprefix(CLIENT_FACT).partition(IS_WORD)[0]
    shared = IS_WORD not in fact or values.sum() > 1
    return fact.startswith(CLIENT_FACT) and bool(shared) and NAME.fullmatch(name) is not None


def separations(facts: Mapping[str, Vector], criteria: Sequence[Criterion]) -> list[Separation]:
    """Compute the spread of each criterion, the one that moves most weight first."""
    number = len(next(iter(facts.values()), ()))
    cohort = Cohort(1, tuple(range(number)), Updates(np.zeros((number, 0), np.float32)), dict(facts))
    lines = []
    for criterion in criteria:
        values = criterion(cohort, History())
        moved = total_variation(shares(values), np.full(number, 1 / number)) if values.any() else 0.0
        spread = (float(values.min()), float(np.median(values)), float(values.max()))
        lines.append(Separation(criterion.name, *spread, moved))
    return sorted(lines, key=lambda line: -line.moved)
