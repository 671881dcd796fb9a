"""Metrics of a run with attackers: accuracy, what they achieved, what they hold, and whether they are suspected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmerit.core.attacks import Attackers, RowAttack
from fedmerit.core.learner import Learner
from fedmerit.core.suspects import Suspect
from fedmerit.core.types import ClientId, Model
from fedmerit.store.ledger import Ledger
from fedmerit.store.suspects import suspects_of
from fedmerit.tasks.attackers import make_probe
from fedmerit.tasks.federation import Federation


@dataclass(frozen=True, slots=True)
class Detection:
    """Suspects against the truth: of the suspected how many attack, of the attackers how many are suspected.

    Attackers that never answered cannot be found, and do not count. NaN where there is nobody to count.
    """

    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class AttackMetrics:
    """One run: final accuracy, success of an attack on rows, weight and heads of the attackers, suspects found.

    `weight` is the attackers' share of the weight, `heads` their share of the clients that answered; means over the
    rounds from their first on. NaN where there are no attackers, or nothing to measure.
    """

    accuracy: float
    success: float
    weight: float
    heads: float
    detection: Detection
    false_alarms: float


def measure_attack(
    ledger: Ledger, attackers: Attackers, model: Model | None, clean: Federation, learner: Learner
) -> AttackMetrics:
    """What came of a run; `clean` has the test rows, and `model` is None where clients share none."""
    suspects, answered = suspects_of(ledger), answered_rounds(ledger)
    found = {suspect.client for suspect in suspects}
    honest = answered.keys() - attackers.members.keys()
    weight, heads = weight_held(ledger, attackers)
    accuracy = ledger.rounds()[-1]["accuracy"]
    return AttackMetrics(
        math.nan if accuracy is None else float(accuracy),
        math.nan if model is None else success(attackers, model, clean, learner),
        weight,
        heads,
        detect(suspects, attackers, answered),
        len(found & honest) / len(honest) if honest else math.nan,
    )


def detect(suspects: list[Suspect], attackers: Attackers, answered: Mapping[ClientId, int]) -> Detection:
    """Suspects against those who do attack."""
    found, planted = {suspect.client for suspect in suspects}, attackers.members.keys() & answered.keys()
    return Detection(
        len(found & planted) / len(found) if found else math.nan,
        len(found & planted) / len(planted) if planted else math.nan,
    )


def success(attackers: Attackers, model: Model, clean: Federation, learner: Learner) -> float:
    """The share of the test rows whose label the attackers want changed that the model gives the label they want."""
    shares = [
        make_probe(coalition.attack, clean.test.x, clean.test.y, clean.classes).success(learner, model)
        for coalition in attackers.coalitions
        if isinstance(coalition.attack, RowAttack)
    ]
    return float(np.mean(shares)) if shares else math.nan


def weight_held(ledger: Ledger, attackers: Attackers) -> tuple[float, float]:
    """The attackers' share of the weight and of the heads, over the rounds in which one could attack."""
    if not attackers.members:
        return math.nan, math.nan
    first = min(coalition.from_round for coalition in attackers.coalitions)
    weights, heads = [], []
    left_out: dict[int, set[ClientId]] = {}
    for event in ledger.events():
        if event.kind == "left-out" and event.client is not None:
            left_out.setdefault(event.round, set()).add(event.client)
    for row in ledger.rounds():
        index = row["round"]
        columns = ledger.weight_columns(index)
        held = dict(zip(columns.ids, columns.weights.tolist(), strict=True))
        everybody = {*held, *left_out.get(index, ())}
        if index >= first and everybody:
            weights.append(sum(weight for client, weight in held.items() if client in attackers.members))
            heads.append(len(everybody & attackers.members.keys()) / len(everybody))
    return (float(np.mean(weights)), float(np.mean(heads))) if weights else (math.nan, math.nan)


def answered_rounds(ledger: Ledger) -> dict[ClientId, int]:
    """In how many rounds each client answered, weighed or left out."""
    counts = {client: rounds for client, (rounds, _) in ledger.work_done().items()}
    for event in ledger.events():
        if event.kind == "left-out" and event.client is not None:
            counts[event.client] = counts.get(event.client, 0) + 1
    return counts
