"""The handout: after a round each client gets its part of its group's aggregate, and says whether it takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedmerit.core.aggregation import Aggregation
from fedmerit.core.fleet import Fleet
from fedmerit.core.groups import Groups
from fedmerit.core.recipes import Recipe
from fedmerit.core.types import ClientId, Cohort, Evaluation, Model, SparseUpdate, Verdict


@dataclass(frozen=True, slots=True)
class SentRewards:
    """The parts of the aggregate that went out, and each client's answer; nothing where all share one model."""

    parts: Mapping[ClientId, SparseUpdate] = field(default_factory=dict)
    verdicts: Mapping[ClientId, Verdict] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(part.size for part in self.parts.values())


def send_rewards(recipe: Recipe, round: Cohort, groups: Groups, found: Aggregation, fleet: Fleet) -> SentRewards:
    """Reward the clients that have models of their own; who shares the one model is rewarded by it."""
    if found.option is None or found.aggregates is None:
        return SentRewards()
    parts: dict[ClientId, SparseUpdate] = {}
    weights, layers = found.option.weights.weights, fleet.layers()
    for places, aggregate in zip(groups.members, found.aggregates, strict=True):
        made = recipe.reward(aggregate, weights[places], round.updates.keep(places), layers)
        parts |= {round.ids[place]: part for place, part in zip(places, made, strict=True)}
    return SentRewards(parts, fleet.reward(round.index, parts, recipe.acceptance))


def tested(recipe: Recipe, model: Model, fleet: Fleet) -> Evaluation:
    """Every client tests the one model, or its own where it has one."""
    return fleet.evaluate_personal(model) if recipe.own else fleet.evaluate([model])[0]
