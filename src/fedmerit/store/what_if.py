"""What if: weigh the rounds of a finished run again with another priority, from the values in its ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.criterion import Criterion, FunctionCriterion
from fedmerit.core.criteria.loss import LossPower
from fedmerit.core.criteria.nearness import MW
from fedmerit.core.criteria.table import (
    PARTICIPATION,
    Attribute,
    Computation,
    check_priority,
    display_name,
    find_criterion,
)
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.facts import CLIP, SAMPLES
from fedmerit.core.state import History
from fedmerit.core.types import EMPTY, REMEMBERED, ClientId, Cohort, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import Lexicographic, Prioritized, Product, Score
from fedmerit.core.weights.weigh import ClientWeight, Normalise, Scale, total_variation, weigh
from fedmerit.errors import UserError
from fedmerit.store.ledger import Ledger, kept_recipe

ANY_NUMBER = (Prioritized, Lexicographic, Product)
"""Scores that accept any number of criteria."""
FROM_FACTS = (FunctionCriterion, Attribute, ClientFact, Computation, LossPower, Validated)
"""Criteria that depend only on facts, where they read any."""


@dataclass(frozen=True, slots=True)
class Reweighed:
    """A round under another priority: its clients, their weights, and the weights they would have had."""

    round: int
    clients: tuple[ClientId, ...]
    before: Vector
    after: Vector

    @property
    def moved(self) -> float:
        """The share of the weight that moves between clients."""
        return total_variation(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Kept:
    """The values of a round that another priority can read.

    lengths     the norms of the received updates, by client
    came        the number of earlier rounds in which each client took part
    measured    facts that were measured after the run, of all clients in their order
    """

    round: int
    lengths: Mapping[ClientId, float]
    came: Mapping[ClientId, int]
    measured: Mapping[str, Vector]


def reweigh(
    ledger: Ledger,
    priority: Sequence[str],
    normalise: Normalise | None = None,
    measured: Mapping[str, Vector] = EMPTY,
) -> list[Reweighed]:
    """Every round under another priority, with the run's score where it accepts any number of criteria.

    This only recomputes weights: retraining with them would give other models and other facts. Each group of a round is
    weighed separately. `measured` are facts that the run did not keep, a value per client.
    """
    check_priority(priority)
    recipe = kept_recipe(ledger)
    score, how = rescored(ledger), normalise or ("sum" if recipe is None else recipe.normalise)
    if isinstance(how, Scale):
        raise UserError(
            "the run's `scale` has no bounds for another priority; use --normalise max, sum, minmax or none"
        )
    lengths: dict[int, dict[ClientId, float]] = {}
    for index, client, length, _ in ledger.observations():
        lengths.setdefault(index, {})[client] = length
    rounds, came = [], dict[ClientId, int]()
    for row in ledger.rounds():
        members = ledger.weights(row["round"])
        if members:
            kept = Kept(row["round"], lengths.get(row["round"], {}), dict(came), measured)
            groups = [
                [one for one in members if one.group == group] for group in sorted({one.group for one in members})
            ]
            parts = [_weigh(kept, group, priority, score, how) for group in groups]
            clients = tuple(one.id for group in groups for one in group)
            before = np.array([one.weight for group in groups for one in group])
            rounds.append(Reweighed(row["round"], clients, before, np.concatenate(parts)))
            for one in members:
                came[one.id] = came.get(one.id, 0) + (not one.facts.get(REMEMBERED))
    if not rounds:
        raise UserError("the run has no round with weights")
    return rounds


def run_priority(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """The symbols of these criteria; a user-defined criterion of the run keeps its name."""
    members = _first_members(ledger)
    return [name if any(name in one.criteria for one in members) else find_criterion(name).name for name in names]


def _first_members(ledger: Ledger) -> list[ClientWeight]:
    return next((members for row in ledger.rounds() if (members := ledger.weights(row["round"]))), [])


def missing_facts(ledger: Ledger, priority: Sequence[str]) -> list[str]:
    """The facts that another priority reads and that the run did not keep."""
    check_priority(priority)
    members = _first_members(ledger)
    needed = dict.fromkeys(
        fact
        for name in priority
        if not all(name in member.criteria for member in members)
        for fact in find_criterion(name).required_facts
    )
    return [fact for fact in needed if not all(fact in member.facts for member in members)]


def rescored(ledger: Ledger) -> Score:
    """The run's score where it accepts any number of criteria, else the prioritized one."""
    recipe = kept_recipe(ledger)
    return recipe.score if recipe is not None and isinstance(recipe.score, ANY_NUMBER) else Prioritized()


def _weigh(
    kept: Kept, members: Sequence[ClientWeight], priority: Sequence[str], score: Score, normalise: Normalise
) -> Vector:
    raw = np.column_stack([_column(kept, members, name) for name in priority])
    samples = np.array([member.facts.get(SAMPLES, 1.0) for member in members])
    return weigh(raw, priority, score, normalise, samples).weights


def _column(kept: Kept, members: Sequence[ClientWeight], name: str) -> Vector:
    """A criterion's raw values: from the ledger, or computed from the round's facts and norms."""
    if all(name in member.criteria for member in members):
        return np.array([member.criteria[name] for member in members])
    criterion, facts = find_criterion(name), set.intersection(*(set(member.facts) for member in members))
    if not _is_known(criterion, kept, members, facts):
        raise UserError(
            f"round {kept.round} has no values to compute {display_name(name)} ({name}) from; it has the criteria "
            f"{', '.join(members[0].criteria)} and the facts {', '.join(sorted(facts))}. Add {name} at the end of "
            "recipe.criteria and run again"
        )
    columns = {
        fact: np.array([member.facts[fact] for member in members])
        if fact in facts
        else kept.measured[fact][[member.id for member in members]]
        for fact in (*criterion.required_facts, *facts & {REMEMBERED})
    }
    lengths = [kept.lengths.get(member.id, 0.0) * member.facts.get(CLIP, 1.0) for member in members]
    updates = Updates(np.array(lengths, np.float32)[:, np.newaxis])  # as long as those that the server saw
    cohort = Cohort(kept.round, tuple(member.id for member in members), updates, columns)
    return criterion(cohort, History(participations=kept.came))


def _is_known(criterion: Criterion, kept: Kept, members: Sequence[ClientWeight], facts: set[str]) -> bool:
    """Whether a criterion can be computed from the updates' norms, from earlier rounds or from facts."""
    if criterion == MW:
        return all(member.id in kept.lengths for member in members)
    needed = set(criterion.required_facts)
    from_facts = isinstance(criterion, FROM_FACTS) and needed and needed <= facts | set(kept.measured)
    return criterion == PARTICIPATION or bool(from_facts)
