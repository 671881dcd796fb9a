"""Reputation: any criterion as its running mean over the rounds that a client took part in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedmerit.core.types import NOTHING, Cohort, Family, History, Vector
from fedmerit.core.weights.weigh import Note
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.criteria.table import Criterion

REPUTATION = "reputation:"


@dataclass(frozen=True, slots=True)
class Reputation:
    """r <- r + a (v - r), v the criterion's value in each round that the client took part in; r ** power counts.

    a = (1 - d) / (1 - d ** (n + 2)), d = 2 ** (-1 / half_life), after n earlier rounds: the mean of all values and the
    start, where a value counts half as much after `half_life` more rounds. One good round does not make a name, one bad
    round does not lose it. A new client starts in the middle: at the median reputation of the round's clients that are
    known, or at the median of the values where none is. r is a fact of the round, kept in the history and in the
    ledger, so that a resumed run has it.

    half_life   in rounds that the client took part in
    power       above 1 a name that is a little worse counts for much less
    least       a name below this share of the mean of the round's names counts nothing [RFFL]

    >>> from fedmerit.core.criteria.table import CB
    >>> Reputation(CB, half_life=5).name
    'reputation:CB'
    """

    of: Criterion
    half_life: float = 10.0
    power: float = 1.0
    least: float = 0.0
    family: Family = Family.TRUST

    def __post_init__(self) -> None:
        if not 0 < self.half_life < np.inf:
            raise ConfigError(f"half_life is a number of rounds, above 0; got {self.half_life}")
        if not 0 < self.power < np.inf:
            raise ConfigError(f"power is an exponent of the reputation, above 0; got {self.power}")
        if not 0 <= self.least < 1:
            raise ConfigError(f"least is a share of the mean reputation, 0 up to below 1; got {self.least}")

    @property
    def name(self) -> str:
        """`reputation:CB` for the criterion CB."""
        return f"{REPUTATION}{self.of.name}"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """Those of the criterion."""
        return self.of.required_facts

    @property
    def degree(self) -> bool:
        """Whether the criterion is a degree."""
        return self.of.degree

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        return f"reputation by {self.of.name}: its running mean over the rounds that the client took part in"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """The running mean after this round, to its power; 0 where it is below the least."""
        kept = cohort.facts[self.name] if self.name in cohort.facts else self.observe(cohort, history)[0]
        if self.least:
            kept = np.where(kept < self.least * kept.mean(), 0.0, kept)
        return kept if self.power == 1 else np.asarray(kept**self.power)

    def observe(self, cohort: Cohort, history: History) -> tuple[Vector, tuple[Note, ...]]:
        """The running mean after this round, to be remembered."""
        values = self.of(cohort, history)
        recent = history.recent.get(self.name, NOTHING)
        before = np.array([recent[client][-1] if client in recent else np.nan for client in cohort.ids])
        middle = np.median(values if np.isnan(before).all() else before[~np.isnan(before)])
        earlier = np.array([history.participations.get(client, 0) for client in cohort.ids])
        keep = 2.0 ** (-1.0 / self.half_life)
        start = np.where(np.isnan(before), middle, before)
        return start + (1 - keep) / (1 - keep ** (earlier + 2)) * (values - start), ()
