"""CGSV [Xu et al. 2021]: reputation by the cosine of a client's normalised update and the weighted sum of all.

r_i = 0.95 r_i + 0.05 cos(u_i, u), u = sum_i r_i * gamma u_i / |u_i|, r normalised to sum 1; rewards are left out.
"""

import numpy as np

from benchmarks.weighbench.method import Method, cosines, positive

ALPHA, GAMMA = 0.95, 0.5


def begin(cell, final=None):
    """Start with equal reputations, as the paper does."""
    reputation = np.full(cell.number, 1 / cell.number)

    def step(index, model, updates):
        nonlocal reputation
        norms = np.maximum(np.linalg.norm(updates, axis=1, keepdims=True), 1e-12)
        used, scaled = reputation, GAMMA * updates / norms
        mean = used @ scaled
        reputation = positive(ALPHA * reputation + (1 - ALPHA) * cosines(scaled, mean))
        if final is not None:
            final[:] = reputation
        return (model + mean).astype(np.float32), used

    return step


def worth(cell):
    """Reputation at the end of a run."""
    final = np.zeros(cell.number)
    cell.loop(begin(cell, final), seed=1)
    return final


METHODS = {"CGSV": Method(worth, lambda cell: lambda: begin(cell))}
