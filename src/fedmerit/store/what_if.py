"""What if: the rounds of a finished run weighed again by another priority, from what the ledger kept of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.collect.late import Staleness
from fedmerit.core.criteria.client_fact import ClientFact
from fedmerit.core.criteria.criterion import Criterion, FunctionCriterion
from fedmerit.core.criteria.loss import LossPower
from fedmerit.core.criteria.table import MW, PARTICIPATION, Attribute, Computation, check_priority, find_criterion
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.facts import CLIP, SAMPLES
from fedmerit.core.state import History
from fedmerit.core.types import EMPTY, ClientId, Cohort, Vector
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import Prioritized, PrioritizedAnd, PrioritizedMean, Product, Score
from fedmerit.core.weights.weigh import ClientWeight, Normalise, Scale, total_variation, weigh
from fedmerit.errors import UserError
from fedmerit.store.ledger import Ledger, kept_recipe

ANY_NUMBER = (Prioritized, PrioritizedAnd, PrioritizedMean, Product)
"""Scores that take any number of criteria."""
FROM_FACTS = (FunctionCriterion, Attribute, ClientFact, Computation, LossPower, Staleness, Validated)
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


@dataclass(frozen=True, slots=True)
class Kept:
    """What there is of a round to weigh it again by.

    lengths     of the updates that the server saw, by client
    came        in how many rounds each client took part before
    measured    facts of all clients that were measured besides, in the order of the clients
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
    """Every round by another priority; the score is the run's where it takes any number of criteria.

    Nothing is trained again: another weighting would have led to other models, and these to other facts. In rounds
    with several groups each is weighed by itself. `measured` are facts that the run did not keep, a value per client.
    """
    check_priority(priority)
    recipe = kept_recipe(ledger)
    score, how = rescored(ledger), normalise or ("sum" if recipe is None else recipe.normalise)
    if isinstance(how, Scale):
        raise UserError("bounds of another priority are not known; give --normalise max, sum, minmax or none")
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
            for client in clients:
                came[client] = came.get(client, 0) + 1
    if not rounds:
        raise UserError("the run has no round in which anybody was weighed")
    return rounds


def missing_facts(ledger: Ledger, priority: Sequence[str]) -> list[str]:
    """The facts that another priority reads and that the run did not keep."""
    check_priority(priority)
    members = next((members for row in ledger.rounds() if (members := ledger.weights(row["round"]))), [])
    needed = dict.fromkeys(
        fact
        for name in priority
        if not all(name in member.criteria for member in members)
        for fact in find_criterion(name).required_facts
    )
    return [fact for fact in needed if not all(fact in member.facts for member in members)]


def rescored(ledger: Ledger) -> Score:
    """The run's score where it takes any number of criteria, else the prioritized one."""
    recipe = kept_recipe(ledger)
    return recipe.score if recipe is not None and isinstance(recipe.score, ANY_NUMBER) else Prioritized()


def _weigh(
    kept: Kept, members: Sequence[ClientWeight], priority: Sequence[str], score: Score, normalise: Normalise
) -> Vector:
    raw = np.column_stack([_column(kept, members, name) for name in priority])
    samples = np.array([member.facts.get(SAMPLES, 1.0) for member in members])
    return weigh(raw, priority, score, normalise, samples).weights


def _column(kept: Kept, members: Sequence[ClientWeight], name: str) -> Vector:
    """A criterion's raw values: kept with the round, or computed from what was."""
    if all(name in member.criteria for member in members):
        return np.array([member.criteria[name] for member in members])
    criterion, facts = find_criterion(name), set.intersection(*(set(member.facts) for member in members))
    if not _is_known(criterion, kept, members, facts):
        raise UserError(
            f"round {kept.round} kept nothing to compute {name} from; it has the criteria "
            f"{', '.join(members[0].criteria)} and the facts {', '.join(sorted(facts))}; run again with {name} in "
            "recipe.criteria, at its end say, to have it kept"
        )
    columns = {
        fact: np.array([member.facts[fact] for member in members])
        if fact in facts
        else kept.measured[fact][[member.id for member in members]]
        for fact in criterion.required_facts
    }
    lengths = [kept.lengths.get(member.id, 0.0) * member.facts.get(CLIP, 1.0) for member in members]
    updates = Updates(np.array(lengths, np.float32)[:, np.newaxis])  # as long as those that the server saw
    cohort = Cohort(kept.round, tuple(member.id for member in members), updates, columns)
    return criterion(cohort, History(participations=kept.came))


def _is_known(criterion: Criterion, kept: Kept, members: Sequence[ClientWeight], facts: set[str]) -> bool:
    """Whether a criterion can be computed from lengths of updates, from the rounds before or from facts."""
    if criterion == MW:
        return all(member.id in kept.lengths for member in members)
    needed = set(criterion.required_facts)
    from_facts = isinstance(criterion, FROM_FACTS) and needed and needed <= facts | set(kept.measured)
    return criterion == PARTICIPATION or bool(from_facts)
