"""Prioritized federated learning in plain numpy, to read next to core/round.py.

    python examples/fedavg_by_hand.py

A test checks that it gives the same model as src/fedmerit/core/round.py.
"""

from __future__ import annotations

import numpy as np

from fedmerit import DS, LD, Task, federate, load_task, prioritized
from fedmerit.core.seeds import derive, generator


def by_hand(task: Task, rounds: int, fraction: float, seed: int) -> np.ndarray:
    """LD before DS, each divided by the round's maximum, scored c1 + c1 * c2 [PMCFL, eq. 6]."""
    data, learner = task.federation, task.learner
    model = learner.start(derive(seed, "model"))
    for index in range(1, rounds + 1):
        number = max(round(fraction * len(data.names)), 1)
        chosen = sorted(generator(seed, "select", index).choice(len(data.names), size=number, replace=False))

        updates, labels, samples = [], [], []
        for client in chosen:
            mine = data.samples(client)
            trained = learner.train(model, mine, derive(seed, "train", index, client))
            updates.append(trained - model)
            labels.append(len(np.unique(mine.y)))
            samples.append(len(mine))

        c1 = np.array(labels) / max(labels)
        c2 = np.array(samples) / max(samples)
        score = c1 + c1 * c2
        weight = score / score.sum()
        model = model + sum(w * update for w, update in zip(weight.astype(np.float32), updates, strict=True))
    return model


def main() -> None:
    """Train with both and print the largest difference of a parameter: rounding of float32 sums."""
    task = load_task("digits", partition="dirichlet", clients=20, train={"lr": 0.3})
    mine = by_hand(task, rounds=10, fraction=0.5, seed=1)
    fast = federate(task, prioritized(LD, DS), rounds=10, fraction=0.5, seed=1)
    print(f"{fast}; largest difference of a parameter: {np.abs(mine - fast.model).max():.1e}")


if __name__ == "__main__":
    main()
