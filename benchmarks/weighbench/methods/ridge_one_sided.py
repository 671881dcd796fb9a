"""One-sided weighting by ridge Shapley values: nobody gains more than its rows, a harmful client loses."""

import numpy as np

from benchmarks.weighbench.method import Method, positive
from benchmarks.weighbench.methods.ridge import worth


def weights(cell):
    """rows * min(1, value / median value)."""
    value = np.maximum(worth(cell), 0)
    return positive(cell.rows * np.minimum(1, value / max(np.median(value), 1e-12)))


METHODS = {"rows x min(1, ridge / median)": Method(worth, weights, sends="128^2 / 2 + 128 k", server=True)}
