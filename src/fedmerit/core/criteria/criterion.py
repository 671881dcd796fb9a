"""Criterion: one value per client and round, finite, not negative, higher is better.

A criterion is one decorated function, or a frozen part where it has settings. A criterion that the server measures is a
stage too: it writes the fact of its name, and calling it only reads the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from fedmerit.core.parts import NO_WORDS, PURE, Words
from fedmerit.core.state import History
from fedmerit.core.types import Cohort, Family, Vector


class Criterion(Protocol):
    """A named column of the table of a round.

    name            what people and configuration call it
    family          what it speaks about
    required_facts  the facts that it reads, by name: of clients, or of the server (`clock`, `epochs`)
    degree          whether raw values lie in 0..1 by themselves, as `normalise = "none"` requires
    about           one line for lists and reports: the name spelt out, a colon, and what it is

    >>> from fedmerit import DS
    >>> DS.name, DS.required_facts
    ('DS', ('samples',))
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def family(self) -> Family: ...  # noqa: D102
    @property
    def required_facts(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def degree(self) -> bool: ...  # noqa: D102
    @property
    def about(self) -> str: ...  # noqa: D102

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """One raw value per client of the cohort, in the order of `cohort.ids`."""


Values: TypeAlias = Callable[[Cohort, History], Vector]


@dataclass(frozen=True, slots=True, repr=False)
class FunctionCriterion:
    """A criterion made of a function; `criterion` and `reported` make them.

    >>> from fedmerit import CB
    >>> CB, CB.about, CB.required_facts
    (CB, 'class balance: rarest class / commonest class', ('balance',))
    """

    name: str
    family: Family
    about: str
    values: Values
    required_facts: tuple[str, ...] = ()
    degree: bool = False
    gives: Words = NO_WORDS

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """What the function gives."""
        return np.asarray(self.values(cohort, history), dtype=np.float64)

    def __repr__(self) -> str:
        return self.name


def criterion(
    name: str,
    family: Family,
    about: str,
    *,
    facts: Sequence[str] = (),
    degree: bool = False,
    gives: Words = NO_WORDS,
) -> Callable[[Values], FunctionCriterion]:
    """A criterion made of a function of the cohort and the history.

    name    what people and configuration call it
    family  what it speaks about
    about   one line for lists and reports
    facts   the facts that it reads, by name; none: the server knows enough
    degree  whether its values lie in 0..1 by themselves
    gives   ACCOUNTED if a client's value depends on no other client, as [privacy] needs it; FACTS_ONLY if it reads no
            update, as `run.facts = "first"` needs it; PURE for both

    >>> @criterion("Square", Family.DATA, "samples squared", facts=["samples"])
    ... def square(cohort, history):
    ...     return cohort.facts["samples"] ** 2
    >>> square.name
    'Square'
    """
    return lambda values: FunctionCriterion(name, family, about, values, tuple(facts), degree, gives)


def reported(name: str, family: Family, fact: str, about: str, *, degree: bool = False) -> FunctionCriterion:
    """A criterion that is a fact, as the client reported it; it depends on no other client."""
    return FunctionCriterion(name, family, about, lambda cohort, history: cohort.facts[fact], (fact,), degree, PURE)
