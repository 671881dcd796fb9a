"""Shapley value of ridge regression on random features, from sums that clients send once.

Phi = relu([x, 1] R) with 128 features; clients send Phi'Phi and Phi'Y; every coalition's model is a linear solve.
"""

import numpy as np

from benchmarks.weighbench.method import Method
from fedmerit.core.criteria.contribution import shapley

FEATURES, PENALTY = 128, 0.1


def worth(cell):
    """v(S) is the accuracy at the server of the ridge model of S."""
    inputs, classes = cell.server.x.shape[1], cell.labels.shape[1]
    directions = np.random.default_rng(0).normal(size=(inputs + 1, FEATURES)) / np.sqrt(inputs)
    inputs_of = [cell.server.x, *(cell.samples(client).x for client in range(cell.number))]
    phi = [np.maximum(np.c_[x, np.ones(len(x))] @ directions, 0) for x in inputs_of]
    grams = np.stack([own.T @ own for own in phi[1:]])
    targets = np.stack([own.T @ np.eye(classes)[cell.samples(i).y] for i, own in enumerate(phi[1:])])

    def value(who):
        left = np.einsum("sn,nij->sij", who, grams) + PENALTY * np.eye(FEATURES)
        outputs = phi[0] @ np.linalg.solve(left, np.einsum("sn,nik->sik", who, targets))
        return (outputs.argmax(axis=2) == cell.server.y).mean(axis=1)

    return shapley(value, cell.number)


def _inputs(cell):
    return [cell.samples(client).x for client in range(cell.number)]


METHODS = {"ridge Shapley": Method(worth, sends="128^2 / 2 + 128 k", server=True)}
