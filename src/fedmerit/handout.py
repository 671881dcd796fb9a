"""The handout: after a round each client gets its part of its group's aggregate, and says whether it takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedmerit.decision import Decision
from fedmerit.fleet.base import Fleet
from fedmerit.groups import Groups
from fedmerit.recipes import Recipe
from fedmerit.types import ClientId, Evaluation, Model, Part, Round, Verdict


@dataclass(frozen=True, slots=True)
class Handout:
    """The parts of the aggregate that went out, and each client's answer; nothing where all share one model."""

    parts: Mapping[ClientId, Part] = field(default_factory=dict)
    verdicts: Mapping[ClientId, Verdict] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(part.size for part in self.parts.values())


def hand_out(recipe: Recipe, round: Round, groups: Groups, found: Decision, fleet: Fleet) -> Handout:
    """Reward the clients that have models of their own; who shares the one model is rewarded by it."""
    if found.option is None or found.aggregates is None:
        return Handout()
    parts: dict[ClientId, Part] = {}
    weights, layers = found.option.weights.weights, fleet.layers()
    for places, aggregate in zip(groups.members, found.aggregates, strict=True):
        made = recipe.reward(aggregate, weights[places], round.updates.keep(places), layers)
        parts |= {round.ids[place]: part for place, part in zip(places, made, strict=True)}
    return Handout(parts, fleet.reward(round.index, parts, recipe.acceptance))


def tested(recipe: Recipe, model: Model, fleet: Fleet) -> Evaluation:
    """Every client tests the one model, or its own where it has one."""
    return fleet.evaluate_own(model) if recipe.own else fleet.evaluate([model])[0]
