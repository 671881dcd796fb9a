"""Multi-Krum [Blanchard et al. 2017] for 2 attackers, and FLTrust [Cao et al. 2021], both as published."""

import numpy as np

from benchmarks.weighbench.method import Method, cosines
from fedmerit.core.seeds import derive

ATTACKERS = 2


def multi_krum(cell):
    """Mean of the n - f clients with the lowest sum of squared distances to their n - f - 2 nearest."""

    def step(index, model, updates):
        near = len(updates) - ATTACKERS
        apart = np.square(updates[:, np.newaxis] - updates).sum(axis=2)
        scores = np.sort(apart, axis=1)[:, 1 : near - 1].sum(axis=1)
        weights = np.isin(np.arange(len(updates)), np.argsort(scores, kind="stable")[:near]) / near
        return (model + weights @ updates).astype(np.float32), weights

    return step


def fltrust(cell):
    """Weights max(0, cos) to the server's own update; every update gets the norm of the server's."""

    def step(index, model, updates):
        own = cell.task.learner.train(model.copy(), cell.server, derive(1, "fltrust", index)) - model
        trust = np.maximum(cosines(updates, own), 0)
        weights = trust / max(trust.sum(), 1e-12)
        norms = np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1e-12)
        return (model + weights @ (updates * np.linalg.norm(own) / norms)).astype(np.float32), weights

    return step


METHODS = {
    "multi-Krum, f = 2": Method(weighting=lambda cell: lambda: multi_krum(cell)),
    "FLTrust": Method(weighting=lambda cell: lambda: fltrust(cell), server=True),
}
