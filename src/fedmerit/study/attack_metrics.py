"""Metrics of a run with attackers: what they achieved, the weight they hold, and whether they are suspected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedmerit.config.schema import Config
from fedmerit.core.attacks import Attackers, RowAttack
from fedmerit.core.suspects import Suspect
from fedmerit.core.types import ClientId, Model
from fedmerit.store.ledger import Ledger
from fedmerit.store.suspects import suspects_of
from fedmerit.tasks.attackers import find_attackers, make_probe
from fedmerit.tasks.registry import Task

METRICS = ("attack success", "attack weight", "attack clients", "attack precision", "attack recall")
"""Metrics of a run that has attackers, as `Study.metrics` names them.

success    share of the test rows whose label attackers want changed for which the model predicts the label they want
weight     the attackers' share of the weight, mean over the rounds in which one could attack
clients    their share of the clients that answered, over the same rounds
precision  share of the suspects that attack
recall     share of the attackers that are suspected, of those that answered
"""


def read_attack_metrics(ledger: Ledger, config: Config, success: float) -> dict[str, float]:
    """Read METRICS of a run from its ledger; empty without attackers, NaN where nothing was measured."""
    attackers = find_attackers(config.task, len(ledger.names()), config.run.seed)
    if not attackers.members:
        return {}
    found = detect(suspects_of(ledger), attackers, answered_rounds(ledger))
    return dict(zip(METRICS, (success, *weight_held(ledger, attackers), *found), strict=True))


def detect(suspects: Sequence[Suspect], attackers: Attackers, answered: Mapping[ClientId, int]) -> tuple[float, float]:
    """Compute precision and recall of the suspects; NaN without suspects or without attackers that answered."""
    found, planted = {suspect.client for suspect in suspects}, attackers.members.keys() & answered.keys()
    return (
        len(found & planted) / len(found) if found else math.nan,
        len(found & planted) / len(planted) if planted else math.nan,
    )


def attack_success(task: Task, model: Model) -> float:
    """Measure the success of label flippers and backdoors on the clean test rows; NaN where nobody changes rows."""
    test, classes = task.federation.test, task.federation.classes
    shares = [
        make_probe(coalition.attack, test.x, test.y, classes).success(task.learner, model)
        for coalition in task.attackers.coalitions
        if isinstance(coalition.attack, RowAttack)
    ]
    return float(np.mean(shares)) if shares else math.nan


def weight_held(ledger: Ledger, attackers: Attackers) -> tuple[float, float]:
    """Compute the attackers' share of the weight and of the clients, over the rounds in which one could attack."""
    first = min(coalition.from_round for coalition in attackers.coalitions)
    weights, clients = [], []
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
            clients.append(len(everybody & attackers.members.keys()) / len(everybody))
    return (float(np.mean(weights)), float(np.mean(clients))) if weights else (math.nan, math.nan)


def answered_rounds(ledger: Ledger) -> dict[ClientId, int]:
    """Count the rounds in which each client answered, weighed or left out."""
    counts = {client: rounds for client, (rounds, _) in ledger.work_done().items()}
    for event in ledger.events():
        if event.kind == "left-out" and event.client is not None:
            counts[event.client] = counts.get(event.client, 0) + 1
    return counts
