"""Shapley value of label counts, without training: v(S) = sum over labels of prior * count / (count + 30)."""

import numpy as np

from benchmarks.weighbench.method import Method
from fedmerit.core.criteria.contribution import shapley

HALF = 30
"""Rows of a label at which half of its value is reached."""


def worth(cell):
    """More rows of a label are worth less and less."""
    prior = np.bincount(cell.server.y, minlength=cell.labels.shape[1]) / len(cell.server.y)

    def value(who):
        counts = who @ cell.labels
        return (counts / (counts + HALF)) @ prior

    return shapley(value, cell.number)


METHODS = {"label-count Shapley": Method(worth, sends="k", server=True)}
