"""What if: the rounds of a finished run weighed again by another priority, from what the ledger kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.criteria import (
    Attribute,
    Computation,
    LossPower,
    Measured,
    Staleness,
    Validated,
    check_priority,
    find_criterion,
)
from fedmerit.core.facts import SAMPLES
from fedmerit.core.own_facts import OwnFact
from fedmerit.core.scores import PLAIN, Prioritized, Score
from fedmerit.core.types import ClientId, Cohort, History, Normalise, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights import ClientWeight, total_variation, weigh
from fedmerit.errors import UserError
from fedmerit.store.ledger import Ledger, kept_recipe

FROM_FACTS = (Measured, Attribute, OwnFact, Computation, LossPower, Staleness, Validated)
"""Criteria that are functions of facts alone, where they read any."""


@dataclass(frozen=True, slots=True)
class Reweighed:
    """A round by another priority: its clients, the weights they had, and those they would have had."""

    round: int
    clients: tuple[ClientId, ...]
    before: Vector
    after: Vector

    @property
    def moved(self) -> float:
        """The share of weight that changes hands."""
        return total_variation(self.before, self.after)


def reweigh(ledger: Ledger, priority: Sequence[str], normalise: Normalise | None = None) -> list[Reweighed]:
    """Every round by another priority; the score is the run's where it takes any number of criteria.

    Nothing is trained again: another weighting would have led to other models, and these to other facts. In rounds
    with several groups each is weighed by itself.
    """
    check_priority(priority)
    score = rescored(ledger)
    how = normalise or _normalise(ledger)
    if how == "scale":
        raise UserError("bounds of another priority are not known; give --normalise max, sum, minmax or none")
    rounds = []
    for row in ledger.rounds():
        members = ledger.weights(row["round"])
        if members:
            groups = [
                [one for one in members if one.group == group] for group in sorted({one.group for one in members})
            ]
            parts = [_weigh(row["round"], group, priority, score, how) for group in groups]
            clients = tuple(one.id for group in groups for one in group)
            before = np.array([one.weight for group in groups for one in group])
            rounds.append(Reweighed(row["round"], clients, before, np.concatenate(parts)))
    if not rounds:
        raise UserError("the run has no round in which anybody was weighed")
    return rounds


def rescored(ledger: Ledger) -> Score:
    """The run's score where it takes any number of criteria, else the prioritized one."""
    recipe = kept_recipe(ledger)
    plain = tuple(kind for kind, _ in PLAIN.values() if isinstance(kind, type))
    return recipe.score if recipe is not None and isinstance(recipe.score, plain) else Prioritized()


def _normalise(ledger: Ledger) -> Normalise:
    recipe = kept_recipe(ledger)
    return "sum" if recipe is None else recipe.normalise


def _weigh(
    index: int, members: Sequence[ClientWeight], priority: Sequence[str], score: Score, normalise: Normalise
) -> Vector:
    raw = np.column_stack([_column(index, members, name) for name in priority])
    samples = np.array([member.facts.get(SAMPLES, 1.0) for member in members])
    return weigh(raw, priority, score, normalise, samples).weights


def _column(index: int, members: Sequence[ClientWeight], name: str) -> Vector:
    """A criterion's raw values: kept with the round, or computed from the facts that were."""
    if all(name in member.criteria for member in members):
        return np.array([member.criteria[name] for member in members])
    criterion, kept = find_criterion(name), set.intersection(*(set(member.facts) for member in members))
    needed = set(criterion.required_facts)
    if not isinstance(criterion, FROM_FACTS) or not needed or not needed <= kept:
        raise UserError(
            f"round {index} kept nothing to compute {name} from; it has the criteria {', '.join(members[0].criteria)} "
            f"and the facts {', '.join(sorted(kept))}"
        )
    columns = {fact: np.array([member.facts[fact] for member in members]) for fact in needed}
    nothing = Updates(np.zeros((len(members), 0), np.float32))
    return criterion(Cohort(index, tuple(member.id for member in members), nothing, columns), History())
