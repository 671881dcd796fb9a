"""Reputation: any criterion as its running mean over the rounds that a client took part in."""

from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.parts import FACTS_ONLY, Doc, Words, declared, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort, Family, Vector

REPUTATION = "reputation:"


@part("criterion", "reputation")
class Reputation:
    """r <- r + a (v - r), v the criterion's value in each round that the client took part in.

    a = (1 - d) / (1 - d ** (n + 2)), d = 2 ** (-1 / half_life), after n earlier rounds: the mean of all values and the
    start, where a value counts half as much after `half_life` more rounds. One good round does not make a reputation,
    one bad round does not lose it. A new client starts at the median reputation of the round's known clients, or at the
    median of the values where none is known. r is a fact of the round, kept in the ledger, so a resumed run has it.

    >>> from fedmerit import CB
    >>> Reputation(CB, half_life=5).name
    'reputation:CB'
    """

    of: Annotated[Criterion, Doc("the criterion")]
    half_life: Annotated[float, Interval(gt=0), Doc("rounds after which a value counts half")] = 10.0

    family: ClassVar[Family] = Family.TRUST
    phase: ClassVar[Phase] = "measure"

    @property
    def name(self) -> str:
        """`reputation:CB` for the criterion CB."""
        return f"{REPUTATION}{self.of.name}"

    @property
    def stages(self) -> tuple[Any, ...]:
        """The criterion, where the server measures it."""
        return (self.of,)

    @property
    def remembers(self) -> tuple[str, ...]:
        """Its own values."""
        return (self.name,)

    @property
    def required_facts(self) -> tuple[str, ...]:
        """Those of the criterion."""
        return self.of.required_facts

    @property
    def gives(self) -> Words:
        """It reads no update if the criterion does not."""
        return FACTS_ONLY & frozenset(declared(self.of, "gives"))

    @property
    def degree(self) -> bool:
        """Whether the criterion is a degree."""
        return self.of.degree

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        return f"reputation by {self.of.name}: its running mean over the rounds that the client took part in"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """The reputation after this round."""
        return cohort.facts[self.name]

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """The running mean after this round."""
        return Measured({self.name: self.after(self.of(cohort, view.history), cohort, view.history)})

    def after(self, values: Vector, cohort: Cohort, history: History) -> Vector:
        """The running means of the cohort's clients after a round with these values."""
        recent = history.recent.get(self.name, EMPTY)
        before = np.array([recent[client][-1] if client in recent else np.nan for client in cohort.ids])
        middle = np.median(values if np.isnan(before).all() else before[~np.isnan(before)])
        earlier = np.array([history.participations.get(client, 0) for client in cohort.ids])
        keep = 2.0 ** (-1.0 / self.half_life)
        start = np.where(np.isnan(before), middle, before)
        after = start + (1 - keep) / (1 - keep ** (earlier + 2)) * (values - start)
        return np.where(cohort.answered, after, start)  # an answer counts once, in its round
