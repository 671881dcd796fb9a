"""What updates of one FedAvg run add on the server's rows, summed over rounds: Shapley and leave-one-out; cosine."""

import numpy as np

from benchmarks.weighbench.method import Method, cosines
from fedmerit.core.criteria.contribution import leave_one_out, shapley


def per_round(divide):
    """Sum over the rounds of what each client adds to v(S), the accuracy of model + mean update of S."""

    def worth(cell):
        total = np.zeros(cell.number)
        for model, updates in cell.run:

            def value(who, model=model, updates=updates):
                weights = who * cell.rows
                sums = np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
                return cell.accuracy((model + (weights / sums) @ updates).astype(np.float32), cell.server)

            total += divide(value, cell.number)
        return total

    return worth


def cosine(cell):
    """Mean cosine of the client's update and the aggregate."""
    return np.mean([cosines(updates, cell.shares @ updates) for _, updates in cell.run], axis=0)


METHODS = {
    "per-round Shapley": Method(per_round(shapley), server=True),
    "leave-one-out": Method(per_round(leave_one_out), server=True),
    "cosine": Method(cosine),
}
