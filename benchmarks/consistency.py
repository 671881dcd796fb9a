"""How often Consistency speaks against honest clients, and against liars, on digits: python benchmarks/consistency.py.

Honest federations of 20 clients, 10 rounds of half of them; a case is one client in one round. The liars are the same
clients with other claims: all labels, perfect balance, or ten times the rows. A case is an alarm below `SUSPECT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedmerit import DS, federate, load_task, prioritized
from fedmerit.core.criteria.consistency import EVIDENCE, SUSPECT, Consistency
from fedmerit.core.criteria.criterion import criterion
from fedmerit.core.history import History
from fedmerit.core.types import Cohort, Family, Vector
from fedmerit.core.updates import Updates

SEEDS, CLIENTS, ROUNDS, CLASSES = 5, 20, 10, 10
PARTITIONS = {"Dirichlet 0.1": 0.1, "Dirichlet 0.5": 0.5, "Dirichlet 2": 2.0, "iid": None}
SETTINGS = [("digits-mlp", 0.1, 2), ("digits-mlp", 0.5, 5), ("digits-linear", 0.1, 2), ("digits-linear", 0.5, 5)]
LIES: Mapping[str, Callable[[Mapping[str, Vector], int], dict[str, float]]] = {
    "all labels": lambda facts, place: {"labels": CLASSES, "coverage": 1.0},
    "balance 1": lambda facts, place: {"balance": 1.0},
    "rows x 10": lambda facts, place: {"samples": 10 * facts["samples"][place]},
}


def cohorts(alpha: float | None, model: str, lr: float, epochs: int, seed: int) -> list[Cohort]:
    """Every round of an honest federation, with the facts that Consistency reads."""
    seen: list[Cohort] = []

    @criterion("Look", Family.TRUST, "keeps the cohort", facts=Consistency(("seconds",)).required_facts)
    def look(cohort: Cohort, history: History) -> Vector:
        rows = np.stack([cohort.updates.row(place) for place in range(len(cohort.ids))])
        seen.append(replace(cohort, updates=Updates(rows), facts=dict(cohort.facts)))
        return np.ones(len(cohort.ids))

    spread = {"partition": "iid"} if alpha is None else {"partition": "dirichlet", "alpha": alpha}
    train = {"lr": lr, "epochs": epochs, "batch": "full"}
    task = load_task("digits", clients=CLIENTS, model=model, seed=seed, train=train, **spread)
    federate(task, prioritized(DS, look), rounds=ROUNDS, fraction=0.5, seed=seed, evaluate_every=ROUNDS)
    return seen


def alarms(cohort: Cohort) -> dict[str, Vector]:
    """Of each evidence, and of the default of them together, who is below `SUSPECT`."""
    values = {name: measure(cohort) < SUSPECT for name, measure in EVIDENCE.items()}
    return {**values, "default": Consistency()(cohort, History()) < SUSPECT}


def lied(cohort: Cohort, lie: str, place: int) -> Cohort:
    """The same round with one client that lies."""
    facts = {name: column.copy() for name, column in cohort.facts.items()}
    for name, value in LIES[lie](cohort.facts, place).items():
        facts[name][place] = value
    return replace(cohort, facts=facts)


def main() -> None:
    """Print the shares of cases with an alarm."""
    print("| clients | claims | cases | labels | balance | noise | seconds | default |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for partition, alpha in PARTITIONS.items():
        seen = [c for setting in SETTINGS for seed in range(SEEDS) for c in cohorts(alpha, *setting, seed)]
        rows = {"honest": [alarms(cohort) for cohort in seen]}
        for lie in LIES:
            rows[lie] = []
            for cohort in seen:
                for place in np.flatnonzero((cohort.facts["labels"] <= 3) | (lie == "rows x 10")):
                    one = alarms(lied(cohort, lie, int(place)))
                    rows[lie].append({name: values[[place]] for name, values in one.items()})
        for claims, found in rows.items():
            if found:
                shares = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
                cases = len(shares["default"])
                print(
                    f"| {partition} | {claims} | {cases} |", " | ".join(f"{v.mean():.1%}" for v in shares.values()), "|"
                )


if __name__ == "__main__":
    main()
